"""The module under OpenTofu or Terraform, with the real schema of Google's provider.

``MEMLITE_TEST_TOFU`` names the program if it is not on the PATH.
``MEMLITE_TEST_TERRAFORM_PROVIDERS`` names a folder with terraform-provider-google if the registry
is not reachable; ``go build`` in a checkout of hashicorp/terraform-provider-google makes it.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memlite.cluster.membership.member import Identity
from memlite.cluster.membership.node import identity_of
from memlite.config import load
from memlite.proxy.options import OPTIONS_OF_A_SERVER
from memlite.proxy.options import command_line as proxy_command_line
from tests.deploy.module import (
    MODULE,
    REQUIREMENTS,
    ROOT,
    SCRIPTS,
    agent_version,
    embedded,
    shipped_unit,
    startup_script,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLE = Path("examples") / "shared-bucket"
PRODUCTION = Path("examples") / "production"
CLUSTER = Path("examples") / "cluster"
PARTS = [Path(), EXAMPLE, PRODUCTION, CLUSTER]
VERSION = Path("memlite") / "core" / "version.py"
# The only variable without a default.
GIVEN = ("-var=project=test-project",)


@dataclass
class Tofu:
    """A Terraform or OpenTofu program, and its environment."""

    program: str
    environment: dict[str, str]

    def run(
        self, folder: Path, *arguments: str, fails: bool = False
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.program, *arguments],
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert fails == (done.returncode != 0), done.stdout + done.stderr
        return done

    def take_tests(self, folder: Path) -> None:
        """Rename the test files as Terraform expects; skip if it does not support mocks.

        Terraform 1.6 and OpenTofu 1.7 do not support mocks, and would refuse to use the module at
        all if its tests had Terraform's usual suffix. They ignore files with the other suffix.
        """
        said = json.loads(self.run(folder, "version", "-json").stdout)["terraform_version"]
        if tuple(map(int, said.split(".")[:2])) < (1, 7):
            pytest.skip(f"{self.program} {said} does not support mocks in tests")
        for file in (folder / "tests").glob("*.tofutest.hcl"):
            file.rename(file.with_name(file.name.replace(".tofutest.", ".tftest.")))

    def plan(self, folder: Path, *options: str) -> dict[str, Any]:
        """Return a plan. The token is fake, since planning looks nothing up."""
        self.run(folder, "plan", "-input=false", "-refresh=false", "-out=plan", *options)
        plan: dict[str, Any] = json.loads(self.run(folder, "show", "-json", "plan").stdout)
        return plan


@pytest.fixture(scope="session")
def program() -> str:
    named = os.environ.get("MEMLITE_TEST_TOFU")
    found = named or shutil.which("tofu") or shutil.which("terraform")
    if found is None:
        pytest.skip("neither tofu nor terraform is on the PATH, and MEMLITE_TEST_TOFU is not set")
    return found


@pytest.fixture(scope="session")
def prepared(program: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tofu, Path]:
    """Copy and initialize the module, ready to be planned."""
    folder = tmp_path_factory.mktemp("checkout")
    module = shutil.copytree(
        MODULE, folder / "terraform", ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*")
    )
    shutil.copytree(SCRIPTS, folder / "scripts")
    shutil.copytree(REQUIREMENTS, folder / "requirements")
    (folder / VERSION).parent.mkdir(parents=True)
    shutil.copy(ROOT / VERSION, folder / VERSION)
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("TF_")},
        "TF_IN_AUTOMATION": "1",
        "TF_CLI_ARGS": "-no-color",
        "CHECKPOINT_DISABLE": "1",
        "GOOGLE_OAUTH_ACCESS_TOKEN": "made-up",
    }
    tofu = Tofu(program, environment)
    settings = folder / "tofurc"
    environment["TF_CLI_CONFIG_FILE"] = str(settings)
    if providers := os.environ.get("MEMLITE_TEST_TERRAFORM_PROVIDERS"):
        settings.write_text(
            "provider_installation {\n"
            f'  dev_overrides {{ "hashicorp/google" = "{providers}" }}\n'
            "  direct {}\n"
            "}\n"
        )
        for part in PARTS:
            tofu.run(module / part, "get")
        return tofu, module
    cache = folder / "cache"
    cache.mkdir()
    settings.write_text(f'plugin_cache_dir = "{cache}"\n')
    for part in PARTS:
        done = subprocess.run(
            [program, "init", "-backend=false", "-input=false"],
            cwd=module / part,
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            pytest.skip(
                "the registry gives no provider, and MEMLITE_TEST_TERRAFORM_PROVIDERS names none: "
                + " ".join(done.stderr.split())[:300]
            )
    return tofu, module


@pytest.fixture
def tofu(prepared: tuple[Tofu, Path]) -> Tofu:
    return prepared[0]


@pytest.fixture
def module(prepared: tuple[Tofu, Path], tmp_path: Path) -> Path:
    """Return a copy of the module for one test."""
    folder = tmp_path / "checkout"
    shutil.copytree(prepared[1].parent, folder, symlinks=True)
    return folder / "terraform"


def test_it_is_formatted(program: str) -> None:
    done = subprocess.run(
        [program, "fmt", "-check", "-recursive", "-diff", MODULE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("part", PARTS, ids=["module", "example", "production", "cluster"])
def test_it_is_valid(tofu: Tofu, module: Path, part: Path) -> None:
    found = json.loads(tofu.run(module / part, "validate", "-json").stdout)
    assert found["valid"] and found["error_count"] == 0, found["diagnostics"]


@pytest.mark.parametrize("part", PARTS, ids=["module", "example", "production", "cluster"])
def test_the_modules_own_tests_pass(tofu: Tofu, module: Path, part: Path) -> None:
    tofu.take_tests(module / part)
    assert ", 0 failed" in tofu.run(module / part, "test").stdout


# Deliberate mistakes that change the module's result, with the tests that must detect them.
SLIPS = [
    ("firewall.tf", "? [var.subnet_range]", '? ["0.0.0.0/0"]', "defaults"),
    ("firewall.tf", "? [var.subnet_range] : []", "? [] : [var.subnet_range]", "network"),
    ("firewall.tf", "130.211.0.0/22", "0.0.0.0/0", "groups"),
    ("groups.tf", 'contains(["bucket", "valkey"], settings.backend)', "true", "groups"),
    ("groups.tf", "= var.updates.max_unavailable", "= 3", "groups"),
    (
        "groups.tf",
        "[google_compute_health_check.balancing",
        "[google_compute_health_check.healing",
        "groups",
    ),
    ("groups.tf", '"YES"', '"NO"', "groups"),
    ("addresses.tf", "/regions/${var.region}/", "/", "network"),
    ("addresses.tf", "${name}.${var.dns_domain}", "${name}", "network"),
    ("addresses.tf", "concat([local.network], var.dns_networks)", "[local.network]", "network"),
    ("network.tf", "? var.project : regex", "? var.project : split", "network"),
    ("monitoring.tf", "!local.tls", "local.tls", "monitoring"),
    (
        "monitoring.tf",
        "EVALUATION_MISSING_DATA_ACTIVE",
        "EVALUATION_MISSING_DATA_NO_OP",
        "monitoring",
    ),
    ("firewall.tf", '["35.235.240.0/20"]', '["0.0.0.0/0"]', "defaults"),
    ("firewall.tf", '["22"]', '["1-65535"]', "defaults"),
    ("servers.tf", 'var.external_addresses ? [""] : []', '[""]', "defaults"),
    ("load_generators.tf", 'var.external_addresses ? [""] : []', '[""]', "defaults"),
    ("bucket.tf", '"enforced"', '"inherited"', "defaults"),
    ("bucket.tf", '["items/"]', "[]", "defaults"),
    ("identity.tf", '"roles/storage.objectUser"', '"roles/storage.admin"', "defaults"),
    ("variables.tf", 'split("/", range)[1]) >= 8', 'split("/", range)[1]) >= 0', "variables"),
    ("variables.tf", "source != null]) <= 1", "source != null]) <= 2", "variables"),
    ("packages.tf", 'vm == "server" ||', "", "backends"),
    ("packages.tf", " --hash=sha256:${filesha256(file)}", "", "backends"),
    ("packages.tf", " --hash=sha256:${filesha256(var.package.wheel)}", "", "backends"),
    ("secrets.tf", "secretmanager.secretAccessor", "secretmanager.admin", "secrets"),
    ("secrets.tf", '"latest"', '"1"', "secrets"),
    ("servers.tf", "ExecStartPre=+", "ExecStartPre=", "secrets"),
    ("servers.tf", "file:///var/lib/memlite/cache.json", "memory://", "backends"),
    ("servers.tf", '"0.0.0.0"', '"127.0.0.1"', "backends"),
    ("servers.tf", "settings.count + 1", "settings.count", "counts"),
    ("identity.tf", "/objects/install/", "/objects/", "backends"),
    ("groups.tf", '"NONE" : null', "null : null", "cluster"),
    ("firewall.tf", "[local.load_tag, local.server_tag]", "[local.load_tag]", "network"),
    ("firewall.tf", "firewall && var.load_generators.count > 0", "firewall", "network"),
    ("firewall.tf", "length(local.groups) > 0", "length(local.managed) > 0", "cluster"),
    ("cluster.tf", "${local.bucket}/cluster", "${local.bucket}/items", "cluster"),
    ("cluster.tf", '"%%"', '"%"', "cluster"),
    ("cluster.tf", "var.cluster == null ? 0 : 2", "2", "cluster"),
    ("startup_node.sh.tftpl", ":${port}", "", "cluster"),
]


def test_the_module_has_what_the_mistakes_change() -> None:
    """Unlike the mistakes themselves, this needs no provider."""
    assert [slip for slip in SLIPS if slip[1] not in (MODULE / slip[0]).read_text()] == []


@pytest.mark.parametrize(("file", "good", "bad", "tests"), SLIPS)
def test_mistakes_fail_the_modules_own_tests(
    tofu: Tofu, module: Path, file: str, good: str, bad: str, tests: str
) -> None:
    text = (module / file).read_text()
    (module / file).write_text(text.replace(good, bad))
    tofu.take_tests(module)
    done = tofu.run(module, "test", f"-filter=tests/{tests}.tftest.hcl", fails=True)
    assert re.search(r", [1-9]\d* failed", done.stdout), done.stdout + done.stderr


def instances(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the planned VMs and templates by name."""
    root = plan["planned_values"]["root_module"]
    return {
        found["values"].get("name") or found["values"]["name_prefix"].removesuffix("-"): found[
            "values"
        ]
        for part in (root, *root.get("child_modules", []))
        for found in part.get("resources", [])
        if found["type"] in ("google_compute_instance", "google_compute_instance_template")
    }


def test_the_example_can_be_planned_with_a_made_up_token(tofu: Tofu, module: Path) -> None:
    plan = tofu.plan(module / EXAMPLE, *GIVEN)
    vms = instances(plan)
    assert sorted(vms) == [
        "memlite-bucket",
        "memlite-load-1",
        "memlite-memory-1",
    ]
    for name, vm in vms.items():
        assert not vm["network_interface"][0].get("access_config"), name
    assert (
        plan["planned_values"]["outputs"]["bucket_url"]["value"]
        == "gs://test-project-memlite/items"
    )


def test_the_example_for_production_can_be_planned(tofu: Tofu, module: Path) -> None:
    plan = tofu.plan(
        module / PRODUCTION,
        "-var=project=test-project",
        "-var=host_project=host-project",
        "-var=notification_channels=[]",
    )
    (template,) = instances(plan).values()
    files = embedded(template["metadata"]["startup-script"])
    assert files["secrets.list"].splitlines() == [
        f"{name} projects/test-project/secrets/memlite-{secret}/versions/latest"
        for name, secret in {
            "tls_certificate": "certificate",
            "tls_key": "key",
            "users": "users",
        }.items()
    ]


SERVERS = {
    "memory": {"backend": "memory", "memory_limit": 1024},
    "file": {"backend": "file", "options": {"durability": "everysec", "verbose": "1"}},
    "bucket": {
        "backend": "bucket",
        "options": {
            "near-cache": "64m",
            "extended": "idle_timeout=600,track_sizes",
            "prefix_delimiter": "#",
            "write_back": "true",
        },
    },
}


def test_memlite_accepts_the_settings(tofu: Tofu, module: Path) -> None:
    secrets = {"users": "u", "tls_certificate": "c", "tls_key": "k", "tls_client_ca": "a"}
    plan = tofu.plan(
        module,
        *GIVEN,
        f"-var=servers={json.dumps(SERVERS)}",
        f"-var=secrets={json.dumps(secrets)}",
    )
    said = {}
    for name, vm in instances(plan).items():
        text = embedded(vm["metadata"]["startup-script"])["memlite.env"]
        # The settings are parsed as by systemd.
        settings = dict(line.split("=", 1) for line in text.splitlines())
        said[name] = subprocess.run(
            [sys.executable, "-m", "memlite", "--print-config"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
            | {key: value[1:-1] for key, value in settings.items()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    for name, lines in {
        "memlite-memory-1": [
            'backend = "memory://"',
            "memory-limit = 1024",
            'listen = ["0.0.0.0"]',
        ],
        "memlite-file-1": [
            'backend = "file:///var/lib/memlite/cache.json"',
            'durability = "everysec"',
        ],
        "memlite-bucket": [
            'backend = "gs://test-project-memlite/items"',
            "near-cache = 67108864",
            'auth-file = "/etc/memlite/secrets/users"',
            "enable-ssl = true",
            'prefix-delimiter = "#"',
            "write-back = true",
        ],
    }.items():
        for line in lines:
            assert f"\n{line}" in said[name], said[name]


def test_memlite_accepts_the_settings_of_a_cluster(tofu: Tofu, module: Path) -> None:
    secrets = {"users": "u", "node_password": "p", "tls_certificate": "c", "tls_key": "k"}
    plan = tofu.plan(
        module,
        *GIVEN,
        "-var=servers={}",
        '-var=cluster={ options = { max_item_size = "2m" } }',
        '-var=proxies={ options = { deadline = "0.5", conn_limit = "5000" } }',
        f"-var=secrets={json.dumps(secrets)}",
    )
    files = {
        name: embedded(vm["metadata"]["startup-script"]) for name, vm in instances(plan).items()
    }
    lines = files["memlite-nodes"]["memlite.env"].splitlines()
    settings = {name: value.strip('"') for name, value in (line.split("=", 1) for line in lines)}
    vm = {"MEMLITE_NAME": "memlite-nodes-x7k2", "MEMLITE_ADVERTISE": "10.42.0.9:11211"}
    node = load([], settings | vm)
    assert node.config.join == "gs://test-project-memlite/cluster"
    assert identity_of(node.config, []) == Identity("memlite-nodes-x7k2", "10.42.0.9:11211")
    (command,) = re.findall(
        r"^ExecStart=(.*)$", files["memlite-proxies"]["memlite.service"], re.MULTILINE
    )
    program, subcommand, *arguments = shlex.split(command)
    assert (program, subcommand) == ("/opt/memlite/current/bin/memlite", "proxy")
    options, others = proxy_command_line().parse_known_args(arguments)
    assert (options.cluster, options.deadline) == (node.config.join, 0.5)
    assert (options.node_user, options.node_tls) == ("proxy", True)
    proxy = load(others, {})
    assert (proxy.config.conn_limit, proxy.config.enable_ssl) == (5000, True)
    given = {name for name, source in proxy.sources.items() if source != "default"}
    assert given <= set(OPTIONS_OF_A_SERVER)


def test_the_rendered_script_equals_that_of_the_other_tests(tofu: Tofu, module: Path) -> None:
    for metrics in (True, False):
        monitoring = f"-var=monitoring={{ metrics = {str(metrics).lower()} }}"
        plan = tofu.plan(module, *GIVEN, "-var=load_generators={ count = 1 }", monitoring)
        vms = instances(plan)
        script = vms["memlite-bucket"]["metadata"]["startup-script"]
        environment = embedded(script)["memlite.env"]
        assert script == startup_script(
            environment, service=True, agent=agent_version(), metrics=metrics
        )
    script = vms["memlite-load-1"]["metadata"]["startup-script"]
    assert script == startup_script(embedded(script)["memlite.env"], service=False, metrics=False)
    plan = tofu.plan(module, *GIVEN, "-var=servers={}", "-var=cluster={}")
    script = instances(plan)["memlite-nodes"]["metadata"]["startup-script"]
    environment = embedded(script)["memlite.env"]
    assert script == startup_script(
        environment, service=True, agent=agent_version(), node=True, metrics=False
    )


def test_the_unit_of_a_proxy_is_that_of_a_server_with_another_command(
    tofu: Tofu, module: Path
) -> None:
    plan = tofu.plan(module, *GIVEN, "-var=servers={}", "-var=cluster={}")
    script = instances(plan)["memlite-proxies"]["metadata"]["startup-script"]
    served, proxied = (
        unit.splitlines() for unit in (shipped_unit(), embedded(script)["memlite.service"])
    )
    assert len(served) == len(proxied)
    (changed,) = (
        (before, after) for before, after in zip(served, proxied, strict=True) if before != after
    )
    assert changed[0] == "ExecStart=/opt/memlite/current/bin/memlite"
    assert changed[1].startswith(f"{changed[0]} proxy ")


def as_if_applied(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the state after applying a plan, except for values that only Google knows."""
    return {
        "version": 4,
        "terraform_version": plan["terraform_version"],
        "serial": 1,
        "lineage": "test",
        "outputs": {},
        "resources": [
            {
                "mode": found["mode"],
                "type": found["type"],
                "name": found["name"],
                "provider": f'provider["{found["provider_name"]}"]',
                "instances": [
                    {
                        **({"index_key": found["index"]} if "index" in found else {}),
                        "schema_version": found["schema_version"],
                        "attributes": {"id": found["address"], **found["values"]},
                    }
                ],
            }
            for found in plan["planned_values"]["root_module"]["resources"]
            # Only one resource of each type and name is supported here.
            if found["type"] == "google_compute_instance"
        ],
    }


@pytest.mark.parametrize(
    ("change", "actions"),
    [
        ('package={ version = "0.2.0" }', ["update"]),
        ("port=12000", ["update"]),
        (
            'servers={ pages = { backend = "memory", options = { max_item_size = "2m" } } }',
            ["update"],
        ),
        ('servers={ pages = { backend = "file" } }', ["update"]),
        ('servers={ pages = { backend = "memory", machine_type = "e2-standard-2" } }', ["update"]),
        ("desired_status=TERMINATED", ["update"]),
        ("image=debian-cloud/debian-13", ["delete", "create"]),
    ],
)
def test_changes_that_replace_a_vm(
    tofu: Tofu, module: Path, change: str, actions: list[str]
) -> None:
    servers = '-var=servers={ pages = { backend = "memory" } }'
    plan = tofu.plan(module, *GIVEN, servers)
    (module / "terraform.tfstate").write_text(json.dumps(as_if_applied(plan)))
    plan = tofu.plan(module, *GIVEN, servers, f"-var={change}")
    found = {each["address"]: each["change"] for each in plan["resource_changes"]}
    assert found['google_compute_instance.server["pages-1"]']["actions"] == actions
