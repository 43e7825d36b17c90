"""gcp-up, gcp-bench and gcp-down, run with stand-ins for gcloud and OpenTofu.

The stand-ins record their calls. `gcloud compute ssh` executes the command on this machine, and
`scp` copies locally, so that gcp-bench really measures. IAP and Terraform itself can only be tested
with a real project.
"""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import hcl2
import pytest

from memlite.loadtest.options import parse
from tests.deploy.module import MODULE, blocks, resources
from tests.support.servers import running
from tests.support.sshd import needs_sshd, sshd

ROOT = Path(__file__).parents[2]

TOFU = """
import json, os, pathlib, sys
arguments = [one for one in sys.argv[1:] if not one.startswith("-chdir")]
world = pathlib.Path(os.environ["WORLD"])
with (world / "calls").open("a") as calls:
    print("tofu", *arguments, file=calls)
if (world / "fails").exists() and arguments[0] in (world / "fails").read_text().split():
    sys.exit("Error: it went wrong")
state = world / "state"
match arguments[:2]:
    case ["plan", *_]:
        sys.exit(0 if state.exists() else 2)
    case ["show", *_]:
        print((world / "plan.json").read_text())
    case ["apply", *_]:
        state.write_text("google_compute_network.this\\ngoogle_storage_bucket.bucket\\n")
    case ["destroy", *_]:
        if (world / "items").exists() and "bucket_force_destroy=true" not in arguments:
            state.write_text("google_project_service.this[0]\\ngoogle_storage_bucket.bucket\\n")
            sys.exit("Error: the bucket is not empty")
        state.unlink()
    case ["state", "list"]:
        print(state.read_text() if state.exists() else "", end="")
    case ["state", "show"]:
        print('    name = "p-memlite"')
    case ["output", "-json"]:
        if not state.exists():
            sys.exit(1)
        print((world / "outputs.json").read_text())
"""

GCLOUD = """
import os, pathlib, shutil, subprocess, sys
arguments = sys.argv[1:]
world = pathlib.Path(os.environ["WORLD"])
with (world / "calls").open("a") as calls:
    print("gcloud", *arguments[:3], file=calls)
match arguments[:2]:
    case ["auth", "list"]:
        print("" if (world / "nobody").exists() else "me@example.com")
    case ["auth", "application-default"]:
        sys.exit((world / "no-credentials").exists())
    case ["config", "get-value"]:
        print("" if (world / "no-project").exists() else "my-project")
    case ["compute", "instances"]:
        print((world / "instances").read_text(), end="")
    case ["compute", "ssh"]:
        command = arguments[arguments.index("--command") + 1]
        if (world / "refuses").exists() and arguments[2] == (world / "refuses").read_text():
            sys.exit("ssh: refused")
        command = command.replace("/etc/ssh/ssh_host_ed25519_key.pub", str(world / "host.pub"))
        sys.exit(subprocess.run(["bash", "-c", command], cwd=world / "there").returncode)
    case ["compute", "scp"]:
        source, target = arguments[-2:]
        source = source.partition(":")[2].removesuffix("/*")
        if not (world / "there" / source).is_dir():
            sys.exit(1)
        shutil.copytree(world / "there" / source, target, dirs_exist_ok=True)
"""

# A study takes minutes: where a test says so, a comparison on the same machines replaces it.
MEMLITE = """
import os, pathlib, sys
arguments = sys.argv[1:]
if arguments[:2] == ["bench", "study"] and "AS_STUDY" in os.environ:
    arguments[1:2] = ["compare", *os.environ["AS_STUDY"].split()]
    pathlib.Path("keys-then").write_text(pathlib.Path(".ssh/authorized_keys").read_text())
if "SSH_CONNECTION" in os.environ and "WORLD" in os.environ:
    os.chdir(os.environ["WORLD"])
os.execv(sys.executable, [sys.executable, "-m", "memlite", *arguments])
"""

# Pretend that all machines have an sshd on the usual port.
SSH = """
import os, sys
os.execv(os.environ["REAL_SSH"], ["ssh", "-p", os.environ["SSH_PORT"], *sys.argv[1:]])
"""

PLAN = {
    "resource_changes": [{"change": {"actions": ["create"]}}] * 3,
    "planned_values": {
        "root_module": {
            "resources": [
                {
                    "mode": "managed",
                    "type": "google_compute_instance",
                    "values": {
                        "machine_type": machine,
                        "desired_status": "RUNNING",
                        "boot_disk": [{"initialize_params": [{"size": 20, "type": "pd-balanced"}]}],
                    },
                }
                for machine in ("e2-standard-2", "e2-standard-2", "x9-standard-2")
            ],
            "child_modules": [
                {"resources": [{"mode": "managed", "type": "google_storage_bucket"}]},
                {"resources": [{"mode": "managed", "type": "google_compute_router_nat"}]},
            ],
        }
    },
}


class World:
    """Create a checkout of the scripts, and stand-ins for the programs they call."""

    def __init__(self, path):
        self.path = path
        self.checkout = path / "checkout"
        (self.checkout / "terraform").mkdir(parents=True)
        (path / "there").mkdir()
        shutil.copytree(ROOT / "scripts", self.checkout / "scripts")
        self.programs = path / "bin"
        self.programs.mkdir()
        for name in ("bash", "env", "dirname", "basename", "date", "mkdir", "rm", "mktemp", "grep",
                     "cat", "timeout", "sleep", "sed", "ssh-keygen"):  # fmt: skip
            if (found := shutil.which(name)) is not None:
                (self.programs / name).symlink_to(found)
        self.program("tofu", TOFU)
        self.program("gcloud", GCLOUD)
        self.program("memlite", MEMLITE)
        (path / "plan.json").write_text(json.dumps(PLAN))

    def program(self, name, text):
        file = self.programs / name
        file.write_text(f"#!{sys.executable}\n{text}")
        file.chmod(0o755)

    def has(self, *names):
        for name in names:
            (self.path / name).touch()

    def is_up(self, servers=(), generators=("lg-1",)):
        (self.path / "state").write_text("google_storage_bucket.bucket\n")
        outputs = {
            "project": "my-project",
            "load_generators": {
                name: {"zone": "z1", "address": "127.0.0.1"} for name in generators
            },
            "bench_targets": servers,
            "study": {"tag": "memlite-server", "ports": "21000:21099"},
        }
        found = {name: {"value": value} for name, value in outputs.items()}
        (self.path / "outputs.json").write_text(json.dumps(found))

    @property
    def calls(self):
        file = self.path / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, name, *arguments, **environment):
        return subprocess.run(
            [self.checkout / "scripts" / name, *map(str, arguments)],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=self.path, timeout=180,
            env={"PATH": str(self.programs), "PYTHON": sys.executable, "WORLD": str(self.path),
                 "HOME": str(self.path), "PYTHONPATH": str(ROOT)} | environment,
        )  # fmt: skip


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def told(world):
    return json.loads((world.checkout / "terraform" / "gcp-up.auto.tfvars.json").read_text())


def test_up_passes_its_options_to_terraform(world):
    done = world.run("gcp-up", "--version", "1", "--yes", "--", "-var", "region=x")
    assert done.returncode == 0, done.stderr
    assert told(world) == {"project": "my-project", "package": {"version": "1"}}
    world.run("gcp-up", "--version", "1", "--compare", "--yes")
    assert {group: one["backend"] for group, one in told(world)["servers"].items()} == {
        "memory": "memory", "disk": "file", "bucket": "bucket",
    }  # fmt: skip
    # For comparison: no load balancer and no agent.
    assert told(world)["servers"]["bucket"]["managed"] is False
    assert told(world)["monitoring"] == {"agent": False}
    assert told(world)["load_generators"] == {"count": 1}


def test_up_can_run_twice(world):
    done = world.run("gcp-up", "--version", "1", "--yes", "--", "-var", "region=x")
    (plan,) = [call for call in world.calls if call.startswith("tofu plan")]
    assert plan.endswith("-var region=x")
    assert any(call.startswith("tofu apply -input=false /") for call in world.calls)
    assert "Resources: 3 created. Total cost afterwards, at us-central1 prices:" in done.stdout
    assert "2 x e2-standard-2                            $0.134" in done.stdout
    assert "60 GiB of pd-balanced                        $0.008" in done.stdout
    assert "1 x x9-standard-2                               ?" in done.stdout
    assert "Cloud NAT                                    $0.009" in done.stdout
    assert "per hour, about (plus unpriced resources)    $0.151" in done.stdout
    assert "The bucket: $0.005 for 1,000 items written" in done.stdout
    assert "scripts/gcp-bench" in done.stdout
    (world.path / "calls").unlink()
    done = world.run("gcp-up", "--project", "other", "--version", "1")
    assert done.returncode == 0, done.stderr
    assert told(world)["project"] == "other"
    assert not [call for call in world.calls if call.startswith("tofu apply")]


@pytest.mark.slow
def test_up_builds_a_wheel_of_the_checkout(world):
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, world.checkout)
    shutil.copytree(
        ROOT / "memlite", world.checkout / "memlite", ignore=shutil.ignore_patterns("__pycache__")
    )
    done = world.run("gcp-up", "--yes", PIP_NO_BUILD_ISOLATION="0", PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr
    wheel = Path(told(world)["package"]["wheel"])
    assert wheel.is_file()
    assert wheel.name.startswith("memlite_cache-")


def test_nothing_is_done_without_confirmation(world):
    done = world.run("gcp-up", "--version", "1")
    assert done.returncode == 1
    assert "--yes" in done.stderr
    assert not [call for call in world.calls if call.startswith("tofu apply")]
    world.is_up(["127.0.0.1:1=x"])
    for name in ("gcp-bench", "gcp-down"):
        assert world.run(name).returncode == 1
    assert (world.path / "state").exists()
    assert not [call for call in world.calls if "destroy" in call or "ssh" in call]


@pytest.mark.parametrize(
    ("name", "arguments", "missing", "code", "said"),
    [
        ("gcp-up", (), "tofu", 1, "neither tofu nor terraform is installed"),
        ("gcp-up", (), "gcloud", 1, "gcloud is not installed"),
        ("gcp-down", (), "gcloud", 1, "gcloud is not installed"),
        ("gcp-bench", (), "tofu", 1, "neither tofu nor terraform is installed"),
        ("gcp-up", ("--project",), None, 64, "--project: needs a value"),
        ("gcp-up", ("--fly",), None, 64, "--fly: unknown option"),
        ("gcp-bench", ("--fly",), None, 64, "--fly: unknown option"),
        ("gcp-down", ("--fly",), None, 64, "--fly: unknown option"),
        ("gcp-bench", ("--out", "/proc/x"), None, 1, "cannot write to /proc/x"),
        ("gcp-bench", (), None, 1, "there is nothing to measure"),
    ],
)
def test_errors_are_reported_in_one_line(world, name, arguments, missing, code, said):
    if missing:
        (world.programs / missing).unlink()
    done = world.run(name, *arguments)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].startswith(f"{name}: ")
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("nobody", "gcloud auth login"),
        ("no-credentials", "gcloud auth application-default login"),
        ("no-project", "gcloud config set project"),
    ],
)
def test_a_missing_account_project_or_credentials_are_reported(world, missing, said):
    world.has(missing)
    done = world.run("gcp-up", "--version", "1", "--yes")
    assert done.returncode != 0
    assert said in done.stderr
    assert not [call for call in world.calls if call.startswith("tofu")]
    if missing == "no-project":
        (world.checkout / "terraform" / "terraform.tfvars").write_text('project = "mine"\n')
        assert world.run("gcp-up", "--version", "1", "--yes").returncode == 0
    if missing == "no-credentials":
        done = world.run("gcp-up", "--version", "1", "--yes", GOOGLE_OAUTH_ACCESS_TOKEN="x")
        assert done.returncode == 0


def test_terraform_is_used_if_tofu_is_not_installed(world):
    (world.programs / "tofu").rename(world.programs / "terraform")
    assert world.run("gcp-up", "--version", "1", "--yes").returncode == 0
    assert world.run("gcp-up", TERRAFORM="nope").stderr.startswith("gcp-up: TERRAFORM=nope")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["init", "plan", "apply"])
def test_a_failure_is_reported_and_up_can_run_again(world, step):
    (world.path / "fails").write_text(step)
    done = world.run("gcp-up", "--version", "1", "--yes")
    assert done.returncode != 0
    assert "it went wrong" in done.stderr
    (world.path / "fails").unlink()
    assert world.run("gcp-up", "--version", "1", "--yes").returncode == 0


@pytest.mark.slow
def test_down(world):
    assert "There is nothing to destroy." in world.run("gcp-down", "--yes").stdout
    world.run("gcp-up", "--version", "1", "--yes")
    done = world.run("gcp-down", "--yes")
    assert done.returncode == 0, done.stderr
    assert "google_storage_bucket.bucket" in done.stdout
    assert not (world.path / "state").exists()
    assert not (world.checkout / "terraform" / "gcp-up.auto.tfvars.json").exists()


@pytest.mark.slow
def test_down_keeps_items_by_default(world):
    world.run("gcp-up", "--version", "1", "--yes")
    world.has("items")
    done = world.run("gcp-down", "--yes")
    assert done.returncode == 0, done.stderr
    assert "The bucket is kept" in done.stdout
    assert "p-memlite" in done.stdout
    assert told(world)["project"] == "my-project"
    assert world.run("gcp-down", "--yes").returncode == 0
    done = world.run("gcp-down", "--yes", "--with-items")
    assert done.returncode == 0, done.stderr
    assert not (world.path / "state").exists()


@pytest.mark.slow
def test_down_can_run_again_after_a_failure(world):
    world.run("gcp-up", "--version", "1", "--yes")
    (world.path / "fails").write_text("destroy")
    done = world.run("gcp-down", "--yes")
    assert done.returncode == 1
    assert "run it again" in done.stderr
    (world.path / "fails").unlink()
    assert world.run("gcp-down", "--yes").returncode == 0


@pytest.mark.slow
def test_bench_measures_and_fetches_results(world):
    with running("memlite") as server:
        world.is_up([f"127.0.0.1:{server.port}=disk", f"127.0.0.1:{server.port}=bucket"])
        done = world.run(
            "gcp-bench", "--yes", "--out", "found", "--", "--clients", 2, "--duration", "200ms",
            "--warm-up", "0s", "--repetitions", 1, "--keys", 100, "--title", "It's two",
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (world.path / "found" / "report.html").is_file()
    found = json.loads((world.path / "found" / "results.json").read_text())
    assert {target["name"] for target in found["targets"]} == {"disk", "bucket"}
    assert found["title"] == "It's two"
    assert done.stdout.strip().endswith("found/report.html")


def has_machines(world, *names):
    (world.path / "instances").write_text(
        "".join(f"{name}\tz1\t127.0.0.{number}\n" for number, name in enumerate(names, 1))
    )
    (world.path / "host.pub").write_text("ssh-ed25519 AAAA root@there\n")


def has_no_keys(world):
    there = world.path / "there"
    return not (there / ".ssh" / "authorized_keys").read_text() and not [
        *there.glob(".memlite-study-*")
    ]


@needs_sshd
def test_a_study_is_measured_on_the_vms_of_servers(world):
    """Check the command by its help, as all options before --help are parsed."""
    world.is_up(["127.0.0.1:1=disk"])  # a server that does not answer is ignored
    has_machines(world, "memlite-disk-1", "memlite-bucket-x")
    done = world.run("gcp-bench", "--yes", "--study", "--out", "found", "--", "--help")
    assert "usage: memlite bench study" in done.stdout
    assert "a study of servers and proxies on:" in done.stdout
    assert "memlite-bucket-x: 127.0.0.2" in done.stdout
    assert "does not answer" not in done.stderr
    assert has_no_keys(world)


@needs_sshd
@pytest.mark.slow
def test_a_study_reaches_the_vms_with_a_key_that_is_removed(world):
    keys, before = world.path / "there" / ".ssh" / "authorized_keys", "# mine\n"
    keys.parent.mkdir()
    keys.write_text(before)
    world.program("ssh", SSH)
    world.is_up(["127.0.0.1:1=disk"])
    has_machines(world, "memlite-disk-1", "memlite-bucket-x")
    (world.path / "sshd").mkdir()
    there = {"PATH": world.programs, "PYTHONPATH": ROOT, "WORLD": world.path}
    with sshd(world.path / "sshd", keys, there) as running:
        port = running.ssh[running.ssh.index("-p") + 1]
        shutil.copy(world.path / "sshd" / "host.pub", world.path)
        done = world.run(
            "gcp-bench", "--yes", "--study", "--out", "found", "--", "--clients", 2,
            "--operations", 200, "--warm-up", "0s", "--repetitions", 1, "--keys", 100,
            AS_STUDY="--cluster=2 --paths=proxied --no-report", REAL_SSH=shutil.which("ssh"),
            SSH_PORT=port,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((world.path / "found" / "results.json").read_text())
    (target,) = found["targets"]
    assert {name: one["machine"] for name, one in target["placed"].items()} == {
        "node-1": "127.0.0.1",
        "node-2": "127.0.0.2",
        "proxy": "127.0.0.1",
    }
    assert all(0 <= int(one.rpartition(":")[2]) - 21000 < 100
               for one in target["details"]["nodes"].split(", "))  # fmt: skip
    # There was a line for each VM, which let the load generator run the launcher only.
    (first, second) = (
        (world.path / "there" / "keys-then").read_text().removeprefix(before).splitlines()
    )
    expiry = re.compile(r'expiry-time="\d+')  # of each VM's key, by the second
    assert expiry.sub("", first) == expiry.sub("", second)
    assert first.startswith('restrict,from="127.0.0.1",expiry-time="20')
    assert ',command="memlite bench launcher" ssh-ed25519 ' in first
    assert keys.read_text() == before
    assert not [*(world.path / "there").glob(".memlite-study-*")]


@needs_sshd
def test_the_key_of_a_study_is_removed_after_a_failure(world):
    world.is_up(["127.0.0.1:1=disk"])
    has_machines(world, "memlite-disk-1", "memlite-disk-2")
    (world.path / "refuses").write_text("memlite-disk-2")
    done = world.run("gcp-bench", "--yes", "--study", "--out", "found")
    assert done.returncode == 1
    assert "gcp-bench: no access to memlite-disk-2" in done.stderr
    assert "memlite-disk-2: remove the line that ends with .memlite-study-" in done.stderr
    assert has_no_keys(world)


def test_a_study_needs_vms_of_servers(world):
    world.is_up(["127.0.0.1:1=disk"])
    has_machines(world)
    done = world.run("gcp-bench", "--yes", "--study")
    assert (done.returncode, "no VM of a server is running" in done.stderr) == (1, True)


@pytest.mark.slow
def test_bench_reports_servers_that_do_not_answer(world):
    world.is_up(["127.0.0.1:1=disk"])
    done = world.run("gcp-bench", "--yes", MEMLITE_GCP_PATIENCE="0")
    assert done.returncode == 1
    assert "127.0.0.1:1 does not answer" in done.stderr
    world.is_up(["127.0.0.1:1=disk"], generators=())
    assert "load_generators" in world.run("gcp-bench", "--yes").stderr
    world.is_up([])
    assert "there is no server" in world.run("gcp-bench", "--yes").stderr


@pytest.mark.slow
def test_bench_fetches_partial_results_after_a_failure(world):
    with running("memlite") as server:
        world.is_up([f"127.0.0.1:{server.port}=disk"])
        done = world.run("gcp-bench", "--yes", "--", "--clients", "0")
    assert done.returncode == 64
    assert "nothing to fetch" in done.stderr


@pytest.mark.parametrize("name", ["gcp-up", "gcp-bench", "gcp-down"])
def test_help(world, name):
    done = world.run(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: {name} ")
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert os.access(ROOT / "scripts" / name, os.X_OK)


def plan_of(*machines, disk):
    """Return a plan with these machines, each with a disk of the given size, behind Cloud NAT."""
    found = [
        {
            "mode": "managed",
            "type": "google_compute_instance",
            "values": {
                "machine_type": machine,
                "boot_disk": [{"initialize_params": [{"size": size, "type": "pd-balanced"}]}],
            },
        }
        for machine, size in zip(machines, disk, strict=True)
    ]
    found.append({"mode": "managed", "type": "google_compute_router_nat"})
    return {"planned_values": {"root_module": {"resources": found}}}


def managed_plan(machine, size, *, disk):
    """Return a plan with a managed group behind Cloud NAT."""
    template = {
        "name_prefix": "memlite-bucket-",
        "machine_type": machine,
        "disk": [{"disk_size_gb": disk, "disk_type": "pd-balanced"}],
    }
    group = {"base_instance_name": "memlite-bucket", "target_size": size}
    found = [
        {"mode": "managed", "type": "google_compute_instance_template", "values": template},
        {
            "mode": "managed",
            "type": "google_compute_region_instance_group_manager",
            "values": group,
        },
        {"mode": "managed", "type": "google_compute_forwarding_rule"},
        {"mode": "managed", "type": "google_compute_router_nat"},
    ]
    return {"planned_values": {"root_module": {"resources": found}}}


def test_costs_on_the_page_are_up_to_date():
    page = (ROOT / "docs" / "how-to" / "deploy-on-gcp.md").read_text()
    rows = dict(re.findall(r"^\| (.+?) \| (?:about )?\$([0-9.]+) \|$", page, re.MULTILINE))
    costs = runpy.run_path(str(ROOT / "scripts" / "gcp" / "costs.py"))["report"]

    def prices(plan):
        return [round(float(line.split("$")[1]), 2) for line in costs(plan) if "$" in line]

    whole = plan_of(*["e2-standard-2"] * 3, "e2-standard-4", disk=[20, 20, 20, 10])
    assert prices(whole) == [float(price) for price in list(rows.values())[:5]]
    row = "one server, e2-small, as without `--compare`, with its load balancer"
    assert prices(managed_plan("e2-small", 1, disk=10))[-1] == float(rows[row])


def test_costs_of_a_managed_group():
    costs = runpy.run_path(str(ROOT / "scripts" / "gcp" / "costs.py"))["report"]
    lines = costs(managed_plan("e2-standard-2", 3, disk=20))
    assert "  3 x e2-standard-2                            $0.201" in lines
    assert "  60 GiB of pd-balanced                        $0.008" in lines
    assert "  1 x load balancer, internal                  $0.025" in lines
    # Stopped.
    lines = costs(managed_plan("e2-standard-2", 0, disk=20))
    assert not [line for line in lines if "e2-standard-2" in line or "GiB of" in line]


def test_commands_on_the_page_are_valid():
    page = (ROOT / "docs" / "how-to" / "deploy-on-gcp.md").read_text()
    calls = re.findall(r"(?:scripts/|`)(gcp-(?:up|bench|down))((?: [^`#\n]+)?)", page)
    assert {name for name, _ in calls} == {"gcp-up", "gcp-bench", "gcp-down"}
    for name, rest in calls:
        own, _, others = rest.partition(" -- ")
        words = shlex.split(own)
        if all(word.startswith("--") or word.isupper() for word in words):
            text = (ROOT / "scripts" / name).read_text()
            assert all(f"  {word} " in text for word in words if word.startswith("--")), rest
        if name == "gcp-bench" and others:
            parse(["compare", "--backends", "", "--target", "127.0.0.1:1", *shlex.split(others)])


@pytest.mark.slow
def test_settings_on_the_page_match_the_module():
    page = (ROOT / "docs" / "how-to" / "deploy-on-gcp.md").read_text()
    (settings,) = re.findall(r"^```hcl\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = {name for name in hcl2.loads(settings) if not name.startswith("__")}
    assert {"project", "servers"} <= names <= blocks(MODULE, "variable").keys()
    outputs = set(re.findall(r"terraform output (\w+)", page))
    assert outputs
    assert outputs <= blocks(MODULE, "output").keys()


@pytest.mark.slow
def test_gcp_bench_reads_the_modules_outputs():
    asked = set(re.findall(r'found\["(\w+)"\]', (ROOT / "scripts" / "gcp-bench").read_text()))
    assert asked == {"project", "load_generators", "bench_targets", "study"}
    assert asked <= blocks(MODULE, "output").keys()
    assert "google_storage_bucket.bucket" in (ROOT / "scripts" / "gcp-down").read_text()
    assert "bucket" in resources(MODULE)["google_storage_bucket"]
    assert {"project", "package", "servers", "load_generators", "bucket_force_destroy"} <= blocks(
        MODULE, "variable"
    ).keys()
