"""The text of the Terraform module, and the script that its VMs run, without Terraform."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.module import (
    MODULE,
    ROOT,
    SCRIPTS,
    agent_config,
    blocks,
    embedded,
    resources,
    shipped_unit,
    startup_script,
)

EVERYBODY = re.compile(r"0\.0\.0\.0/0|::/0|allUsers|allAuthenticatedUsers")


def firewall_is_closed(module: Path) -> None:
    rules = resources(module)["google_compute_firewall"]
    assert {name: rule.get("source_ranges") for name, rule in rules.items()} == {
        "clients": "${concat(var.existing_network == null ? [var.subnet_range] : [], "
        "var.client_ranges)}",
        "cluster": None,
        "health_checks": ["35.191.0.0/16", "130.211.0.0/22"],
        "ssh": ["35.235.240.0/20"],
        "study": None,
        "study_ssh": None,
    }
    assert rules["clients"]["source_tags"] == ["${local.load_tag}"]
    memlite = [{"protocol": "tcp", "ports": ["${tostring(var.port)}"]}]
    assert {name: rule["allow"] for name, rule in rules.items()} == {
        "clients": memlite,
        "cluster": memlite,
        "health_checks": memlite,
        "ssh": [{"protocol": "tcp", "ports": ["22"]}],
        "study": [
            {
                "protocol": "tcp",
                "ports": ["${local.study_ports.first}-${local.study_ports.last}"],
            }
        ],
        "study_ssh": [{"protocol": "tcp", "ports": ["22"]}],
    }
    servers = ["${local.server_tag}"]
    assert rules["cluster"]["source_tags"] == servers
    assert rules["study"]["source_tags"] == ["${local.load_tag}", *servers]
    assert rules["study_ssh"]["source_tags"] == ["${local.load_tag}"]
    assert {name: rule.get("target_tags") for name, rule in rules.items()} == {
        "clients": servers,
        "cluster": servers,
        "health_checks": servers,
        "ssh": [*servers, "${local.load_tag}"],
        "study": servers,
        "study_ssh": servers,
    }
    assert "0.0.0.0/0" not in str(resources(module))


def nothing_is_public(module: Path) -> None:
    for kind, named in resources(module).items():
        for name, body in named.items():
            assert not EVERYBODY.search(str(body)), f"{kind}.{name}"
    for name, variable in blocks(module, "variable").items():
        assert not EVERYBODY.search(str(variable.get("default"))), name


def bucket_is_private(module: Path) -> None:
    (bucket,) = resources(module)["google_storage_bucket"].values()
    assert bucket["uniform_bucket_level_access"] is True
    assert bucket["public_access_prevention"] == "enforced"
    assert bucket["force_destroy"] == "${var.bucket_force_destroy}"
    assert bucket["soft_delete_policy"] == [
        {"retention_duration_seconds": "${var.bucket_soft_delete_seconds}"}
    ]
    variables = blocks(module, "variable")
    assert variables["bucket_force_destroy"]["default"] is False
    assert variables["bucket_soft_delete_seconds"]["default"] == 0


def roles_are_few(module: Path) -> None:
    found = resources(module)
    kinds = {kind for kind in found if "_iam_" in kind}
    # Resources that end in binding or policy would revoke roles that others hold.
    assert kinds == {
        "google_project_iam_member",
        "google_secret_manager_secret_iam_member",
        "google_storage_bucket_iam_member",
    }
    roles = {
        f"{kind}.{name}": sorted(
            set(re.findall(r"roles/[\w.]+", f"{body.get('for_each')} {body['role']}"))
        )
        for kind in kinds
        for name, body in found[kind].items()
    }
    assert roles == {
        "google_project_iam_member.server": [
            "roles/logging.logWriter",
            "roles/monitoring.metricWriter",
        ],
        # For connecting, which a group with Valkey requires.
        "google_project_iam_member.valkey": ["roles/memorystore.dbConnectionUser"],
        "google_storage_bucket_iam_member.server": [
            "roles/storage.legacyBucketReader",
            "roles/storage.objectUser",
        ],
        "google_storage_bucket_iam_member.load": ["roles/storage.objectViewer"],
        # Only on the secrets that are named in `secrets`.
        "google_secret_manager_secret_iam_member.server": ["roles/secretmanager.secretAccessor"],
    }
    assert "/objects/install/" in str(
        found["google_storage_bucket_iam_member"]["load"]["condition"]
    )


def vms_are_private(module: Path) -> None:
    assert blocks(module, "variable")["external_addresses"]["default"] is False
    found = resources(module)
    balancers = found["google_compute_forwarding_rule"].values()
    assert {rule["load_balancing_scheme"] for rule in balancers} == {"INTERNAL"}
    addresses = found["google_compute_address"].values()
    assert {address["address_type"] for address in addresses} == {"INTERNAL"}
    (zone,) = found["google_dns_managed_zone"].values()
    assert zone["visibility"] == "private"
    servers_metadata = re.search(
        r"  metadata = \{ for.*?\n  \} \}\n", (module / "servers.tf").read_text(), re.DOTALL
    )
    assert servers_metadata
    vms = found["google_compute_instance"] | {
        f"template {name}": vm for name, vm in found["google_compute_instance_template"].items()
    }
    for name, vm in vms.items():
        (interface,) = vm["network_interface"]
        assert set(interface) <= {"subnetwork", "network_ip", "dynamic"}, name
        ((kind, address),) = interface["dynamic"][0].items()
        assert (kind, address["for_each"]) == (
            "access_config",
            '${var.external_addresses ? [""] : []}',
        ), name
        assert vm["shielded_instance_config"] == [
            {
                "enable_secure_boot": True,
                "enable_vtpm": True,
                "enable_integrity_monitoring": True,
            }
        ], name
        metadata = str(vm["metadata"])
        if "local.metadata[" in metadata:
            metadata = servers_metadata[0]
        assert "enable-oslogin" in metadata and "block-project-ssh-keys" in metadata, name
        # It would replace the VM on every change.
        assert "metadata_startup_script" not in vm, name


CHECKS = [
    firewall_is_closed,
    nothing_is_public,
    bucket_is_private,
    roles_are_few,
    vms_are_private,
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_module_passes_all_checks(check: Callable[[Path], None]) -> None:
    check(MODULE)


# Mistakes and plausible changes that the checks must detect.
SLIPS = [
    ("firewall.tf", "[var.subnet_range] : []", '[var.subnet_range] : ["10.0.0.0/8"]'),
    ("firewall.tf", '"130.211.0.0/22"', '"130.211.0.0/16"'),
    ("groups.tf", '"INTERNAL"', '"EXTERNAL"'),
    ("groups.tf", 'var.external_addresses ? [""] : []', '[""]'),
    ("addresses.tf", '"INTERNAL"', '"EXTERNAL"'),
    ("addresses.tf", '"private"', '"public"'),
    ("secrets.tf", "secretAccessor", "admin"),
    ("firewall.tf", '["35.235.240.0/20"]', '["35.235.240.0/20", "0.0.0.0/0"]'),
    ("firewall.tf", '["22"]', '["22", "11211"]'),
    ("firewall.tf", "target_tags   = [local.server_tag]", ""),
    ("firewall.tf", "[local.load_tag, local.server_tag]", '["others"]'),
    ("firewall.tf", "source_tags = [local.load_tag]", 'source_ranges = ["10.0.0.0/8"]'),
    ("firewall.tf", "source_tags = [local.server_tag]", 'source_ranges = ["10.0.0.0/8"]'),
    ("firewall.tf", "target_tags   = [local.server_tag, local.load_tag]", ""),
    ("servers.tf", 'block-project-ssh-keys = "TRUE"', ""),
    ("bucket.tf", '"enforced"', '"inherited"'),
    ("bucket.tf", "= var.bucket_force_destroy", "= true"),
    ("bucket.tf", "= var.bucket_soft_delete_seconds", "= 604800"),
    ("identity.tf", '"roles/storage.objectUser"', '"roles/storage.objectAdmin"'),
    ("identity.tf", '"roles/logging.logWriter", ', '"roles/logging.logWriter", "roles/editor", '),
    ("identity.tf", "/objects/install/", "/objects/"),
    ("servers.tf", 'var.external_addresses ? [""] : []', '[""]'),
    ("servers.tf", "enable_secure_boot          = true", "enable_secure_boot          = false"),
    ("load_generators.tf", 'enable-oslogin         = "TRUE"', ""),
]


@pytest.mark.parametrize(("file", "good", "bad"), SLIPS)
def test_mistakes_are_detected(tmp_path: Path, file: str, good: str, bad: str) -> None:
    module = shutil.copytree(MODULE, tmp_path / "terraform")
    text = (module / file).read_text()
    assert good in text
    (module / file).write_text(text.replace(good, bad))
    with pytest.raises(AssertionError):
        for check in CHECKS:
            check(module)


def test_all_resources_are_in_the_given_project() -> None:
    of_others = {
        # These are in the project of the resource they refer to.
        "google_storage_bucket_iam_member",
        "google_storage_bucket_object",
        "google_secret_manager_secret_iam_member",
    }
    for kind, named in resources(MODULE).items():
        for name, body in named.items():
            if kind == "google_compute_firewall":
                assert body["project"] == "${local.network_project}", name
            elif kind not in of_others:
                assert body["project"] == "${var.project}", f"{kind}.{name}"


def test_variables_and_outputs_are_described() -> None:
    for folder in (MODULE, *(MODULE / "examples").iterdir()):
        for name, variable in blocks(folder, "variable").items():
            assert {"type", "description"} <= set(variable), name
        for name, output in blocks(folder, "output").items():
            assert "description" in output, name


def test_the_module_configures_no_provider() -> None:
    for file in MODULE.glob("*.tf"):
        assert not re.search(r"^provider ", file.read_text(), re.MULTILINE), file.name


def test_the_readme_lists_the_variables() -> None:
    command = [sys.executable, str(SCRIPTS / "docs" / "write_terraform_reference.py"), "--check"]
    assert subprocess.run(command).returncode == 0, "run scripts/docs/write_terraform_reference.py"


def test_the_readme_lists_the_files() -> None:
    text = (MODULE / "README.md").read_text()
    boring = {"versions.tf", "variables.tf", "outputs.tf", "README.md"}
    for file in MODULE.iterdir():
        if file.is_file() and not file.name.startswith(".") and file.name not in boring:
            assert f"`{file.name}`" in text, file.name
    for link in re.findall(r"`(scripts/[\w./-]+)`", text):
        assert (ROOT / link).exists(), link


# The start-up script


def test_the_startup_script_contains_the_files() -> None:
    files = embedded(startup_script('MEMLITE_PORT="11211"', service=True))
    assert files == {
        "memlite-startup": (MODULE / "startup_watcher.sh").read_text(),
        "memlite-startup.service": (MODULE / "startup_watcher.service").read_text(),
        "install-systemd.sh": (SCRIPTS / "systemd" / "install-systemd.sh").read_text(),
        "memlite.service": shipped_unit(),
        "memlite-secrets": (MODULE / "startup_secrets.py").read_text(),
        "memlite-secrets.service": (MODULE / "startup_secrets.service").read_text(),
        "memlite-secrets.timer": (MODULE / "startup_secrets.timer").read_text(),
        "secrets.list": "\n",
        "memlite-agent": (MODULE / "startup_agent.sh").read_text(),
        "agent.yaml": agent_config(),
        "memlite.env": 'MEMLITE_PORT="11211"\n',
    }


def shellcheck(script: str) -> None:
    command = shutil.which("shellcheck")
    if command is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([command, "-"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("service", "node"), [(True, False), (True, True), (False, False)])
def test_shellcheck_finds_nothing_in_the_startup_script(service: bool, node: bool) -> None:
    shellcheck(startup_script('MEMLITE_PORT="11211"', service=service, agent="2.70.0", node=node))


def test_shellcheck_finds_nothing_in_the_embedded_scripts() -> None:
    shellcheck((MODULE / "startup_watcher.sh").read_text())
    shellcheck((MODULE / "startup_agent.sh").read_text())
    shellcheck((SCRIPTS / "systemd" / "install-systemd.sh").read_text())
