"""The text of the Terraform module, for tests without Terraform."""

import functools
import hashlib
import re
from pathlib import Path
from typing import Any

import hcl2

from memlite.core.version import __version__

ROOT = Path(__file__).parent.parent.parent
MODULE = ROOT / "terraform"
SCRIPTS = ROOT / "scripts"
REQUIREMENTS = ROOT / "requirements"
BUCKET = "gs://test-project-memlite"

Block = dict[str, Any]


def resources(module: Path) -> dict[str, dict[str, Block]]:
    """Return resources by type and name."""
    found: dict[str, dict[str, Block]] = {}
    for file in sorted(module.glob("*.tf")):
        for block in _parse(file).get("resource", []):
            ((kind, named),) = block.items()
            ((name, body),) = named.items()
            found.setdefault(kind, {})[name] = body
    return found


def blocks(module: Path, kind: str) -> dict[str, Block]:
    """Return variables or outputs by name."""
    return {
        name: body
        for file in sorted(module.glob("*.tf"))
        for block in _parse(file).get(kind, [])
        for name, body in block.items()
    }


def install(vm: str) -> list[str]:
    """Return the arguments with which servers and load generators install memlite by default."""
    locked = REQUIREMENTS / {"server": "gcs.txt", "load": "bench.txt"}[vm]
    extras = {"server": "gcs", "load": "bench,gcs"}[vm]
    digest = hashlib.sha256(locked.read_bytes()).hexdigest()
    return [
        "--package",
        f"memlite-cache[{extras}]=={__version__}",
        "--requirements",
        f"{BUCKET}/install/{digest}/{vm}.txt --hash=sha256:{digest}",
    ]


def shipped_unit() -> str:
    """Return the unit of memlite on a VM."""
    unit = (SCRIPTS / "systemd" / "memlite.service").read_text()
    fetch = "ExecStartPre=+/usr/local/sbin/memlite-secrets\n"
    return unit.replace("\nExecStart=", f"\n{fetch}ExecStart=")


def agent_version() -> str:
    """Return the version of the Ops Agent that servers install by default."""
    return re.findall(
        r'agent_version += optional\(string, "(.*)"\)', (MODULE / "variables.tf").read_text()
    )[0]


def agent_config(*, metrics: bool = True) -> str:
    """Return the settings of the Ops Agent on servers without passwords.

    Args:
        metrics: whether the agent sends memlite's own metrics.
    """
    given = {"statistics": True, "metrics": metrics}
    conditions: list[bool] = []
    text = ""
    for line in (MODULE / "startup_agent.yaml.tftpl").read_text().splitlines(keepends=True):
        if found := re.fullmatch(r"%\{ if (.*) ~\}\n", line):
            conditions.append(any(given[name] for name in found[1].split(" || ")))
        elif line == "%{ endif ~}\n":
            conditions.pop()
        else:
            assert not line.startswith("%{"), "other directives are not rendered here"
            text += line if all(conditions) else ""
    for name, value in (("port", "11211"), ("http_port", "9150"), ("name", "memlite")):
        text = text.replace(f"${{{name}}}", value)
    return text


def node_script() -> str:
    """Return the lines that a cluster node adds to its start-up script."""
    return (MODULE / "startup_node.sh.tftpl").read_text().replace("${port}", "11211")


def startup_script(
    environment: str,
    *,
    service: bool,
    installer: str | None = None,
    secrets: str = "",
    agent: str = "",
    agent_script: str | None = None,
    node: bool = False,
    metrics: bool = True,
) -> str:
    """Return the start-up script of a VM, rendered as by ``templatefile``."""
    values = {
        "watcher": (MODULE / "startup_watcher.sh").read_text(),
        "watcher_unit": (MODULE / "startup_watcher.service").read_text(),
        "installer": installer or (SCRIPTS / "systemd" / "install-systemd.sh").read_text(),
        "unit": shipped_unit(),
        "secrets": (MODULE / "startup_secrets.py").read_text(),
        "secrets_unit": (MODULE / "startup_secrets.service").read_text(),
        "secrets_timer": (MODULE / "startup_secrets.timer").read_text(),
        "secrets_list": secrets,
        "agent": agent,
        "agent_script": agent_script or (MODULE / "startup_agent.sh").read_text(),
        "agent_config": agent_config(metrics=metrics),
        "environment": environment,
        "identity": node_script() if node else "",
        "arguments": " ".join(
            f"'{word}'" if "/" in word or "=" in word else word
            for word in (
                [*install("server"), "--unit", "memlite.service", "--environment", "memlite.env"]
                if service
                else [*install("load"), "--no-service"]
            )
        ),
    }
    template = (MODULE / "startup.sh.tftpl").read_text()
    assert "%{" not in template, "directives are not rendered here"
    return re.sub(r"(?<!\$)\$\{(\w+)\}", lambda found: values[found[1]].strip(), template)


def embedded(script: str) -> dict[str, str]:
    """Return the files that a start-up script writes, by name."""
    pattern = r"^cat >\"\$work/([\w.-]+)\" <<'END_OF_FILE'\n(.*?)^END_OF_FILE$"
    return dict(re.findall(pattern, script, re.MULTILINE | re.DOTALL))


def _parse(file: Path) -> Block:
    return _parsed(file.read_text(encoding="utf-8"))


@functools.cache
def _parsed(text: str) -> Block:
    """Parse a file, once: parsing takes half a second, and many tests read the same files."""
    block: Block = _plain(hcl2.loads(text))
    return block


def _plain(value: Any) -> Any:
    """Remove python-hcl2's markers: the quotes around strings and the marks of blocks."""
    if isinstance(value, dict):
        return {
            _plain(key): _plain(part)
            for key, part in value.items()
            if key not in ("__is_block__", "__comments__")
        }
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value
