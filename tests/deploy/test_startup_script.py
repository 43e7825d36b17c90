"""The start-up script and its watcher, run against the test's own metadata server.

Stand-ins replace the commands that would change this machine. The installer has tests of its own.
"""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.deploy.module import MODULE, agent_config, install, startup_script

PATH = "/computeMetadata/v1/instance/attributes/startup-script"


class Metadata(ThreadingHTTPServer):
    """A metadata server that serves a start-up script."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.changed = threading.Condition()
        self.script = ""
        self.etag = 0
        self.waiting = 0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def put(self, script: str) -> None:
        with self.changed:
            self.script = script
            self.etag += 1
            self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    server: Metadata

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: value for name, (value,) in parse_qs(url.query).items()}
        server = self.server
        if url.path != PATH or self.headers["Metadata-Flavor"] != "Google":
            self.send_error(403)
            return
        with server.changed:
            if asked.get("wait_for_change") == "true":
                server.waiting += 1
                server.changed.wait_for(
                    lambda: asked["last_etag"] != f"tag{server.etag}", float(asked["timeout_sec"])
                )
                server.waiting -= 1
            body, etag = server.script.encode(), f"tag{server.etag}"
        self.send_response(200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def start_watcher(metadata: Metadata, applied: Path) -> subprocess.Popen[str]:
    text = (MODULE / "startup_watcher.sh").read_text()
    assert "/var/lib/memlite-startup/applied" in text
    return subprocess.Popen(
        ["bash", "-c", text.replace("/var/lib/memlite-startup/applied", str(applied))],
        env={**os.environ, "METADATA_URL": metadata.url, "no_proxy": "127.0.0.1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def eventually(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_script_that_was_not_applied_is_run(metadata: Metadata, tmp_path: Path) -> None:
    metadata.put(f"echo ran >{tmp_path / 'mark'}\n")
    with start_watcher(metadata, tmp_path / "applied") as watcher:
        assert watcher.wait(60) == 0
    assert (tmp_path / "mark").read_text() == "ran\n"


def test_a_changed_script_is_run_and_an_applied_one_is_not(
    metadata: Metadata, tmp_path: Path
) -> None:
    script = f"echo first >>{tmp_path / 'mark'}\n"
    (tmp_path / "applied").write_text(script)
    metadata.put(script)
    with start_watcher(metadata, tmp_path / "applied") as watcher:
        eventually(lambda: metadata.waiting == 1)
        # The same script is written again, which does not count as a change.
        metadata.put(script)
        eventually(lambda: metadata.waiting == 1)
        assert watcher.poll() is None
        metadata.put(f"echo second >>{tmp_path / 'mark'}\n")
        assert watcher.wait(60) == 0
    assert (tmp_path / "mark").read_text() == "second\n"


@pytest.mark.parametrize("script", ["exit 3\n", None])
def test_the_watcher_exits_on_failures_so_that_systemd_restarts_it(
    metadata: Metadata, tmp_path: Path, script: str | None
) -> None:
    if script is None:
        metadata.url += "/nothing"
    else:
        metadata.put(script)
    with start_watcher(metadata, tmp_path / "applied") as watcher:
        assert watcher.wait(60) != 0
    unit = (MODULE / "startup_watcher.service").read_text()
    assert "Restart=always\n" in unit and "StartLimitIntervalSec=0\n" in unit


INSTALLER = """\
#!/usr/bin/env bash
printf '%s\\n' "$@" >ROOT/arguments
cp memlite.service memlite.env ROOT
[ ! -e ROOT/fail ]
"""


AGENT = """\
#!/usr/bin/env bash
echo "$1" >ROOT/agent
cp "$2" ROOT/agent.yaml
[ ! -e ROOT/agent-fails ]
"""


CURL = """\
#!/usr/bin/env bash
[ ! -e ROOT/metadata-fails ] || exit 22
case "$*" in
    *"Metadata-Flavor: Google http://metadata.google.internal/"*"/instance/name")
        printf memlite-nodes-x7k2 ;;
    *"Metadata-Flavor: Google http://metadata.google.internal/"*"/network-interfaces/0/ip")
        printf 10.42.0.9 ;;
    *) exit 3 ;;
esac
"""


def run_startup(
    root: Path, *, service: bool = True, secrets: str = "", agent: str = "", node: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a start-up script with its paths moved under a folder."""
    script = startup_script(
        'MEMLITE_PORT="11211"',
        service=service,
        installer=INSTALLER.replace("ROOT", str(root)),
        secrets=secrets,
        agent=agent,
        agent_script=AGENT.replace("ROOT", str(root)),
        node=node,
    )
    for place in (
        "/run/lock/", "/usr/local/sbin/", "/etc/systemd/system/", "/etc/memlite/", "/var/lib/",
    ):  # fmt: skip
        # The files that the script installs keep their paths.
        head, brought, tail = script.partition("# Files rendered by the module")
        files, watcher, end = tail.partition("# The watcher\n")
        (root / place[1:]).mkdir(parents=True, exist_ok=True)
        script = (
            head.replace(place, f"{root}{place}")
            + brought
            + files
            + watcher
            + end.replace(place, f"{root}{place}")
        )
    commands = root / "bin"
    commands.mkdir(exist_ok=True)
    (commands / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{root}/systemctl\n')
    (commands / "systemctl").chmod(0o755)
    (commands / "curl").write_text(CURL.replace("ROOT", str(root)))
    (commands / "curl").chmod(0o755)
    (root / "startup").write_text(script)
    return subprocess.run(
        ["bash", root / "startup"],
        env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )


def test_the_startup_script_installs_and_notifies_the_watcher(tmp_path: Path) -> None:
    for _ in range(2):
        done = run_startup(tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "arguments").read_text().splitlines() == [
        *install("server"),
        "--unit",
        "memlite.service",
        "--environment",
        "memlite.env",
    ]
    assert (tmp_path / "memlite.env").read_text() == 'MEMLITE_PORT="11211"\n'
    applied = tmp_path / "var/lib/memlite-startup/applied"
    assert applied.read_bytes() == (tmp_path / "startup").read_bytes()
    assert (tmp_path / "systemctl").read_text().splitlines() == [
        "daemon-reload",
        "daemon-reload",
        "disable --now memlite-secrets.timer",
        "--no-block start memlite-startup.service",
    ] * 2
    assert (tmp_path / "etc/memlite/secrets.list").read_text() == ""
    watcher = tmp_path / "usr/local/sbin/memlite-startup"
    assert watcher.read_text() == (MODULE / "startup_watcher.sh").read_text()
    assert os.access(watcher, os.X_OK)


def test_the_startup_script_fetches_secrets_before_and_after_the_installation(
    tmp_path: Path,
) -> None:
    secrets = "users projects/p/secrets/users/versions/latest"
    done = run_startup(tmp_path, secrets=secrets)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "etc/memlite/secrets.list").read_text() == f"{secrets}\n"
    assert "\nExecStartPre=+" in (tmp_path / "memlite.service").read_text()
    assert (tmp_path / "systemctl").read_text().splitlines()[2:4] == [
        "start memlite-secrets.service",
        "enable --now memlite-secrets.timer",
    ]
    # Without secrets, their files are removed.
    (tmp_path / "etc/memlite/secrets").mkdir()
    assert run_startup(tmp_path).returncode == 0
    assert not (tmp_path / "etc/memlite/secrets").exists()


def test_a_node_has_the_name_and_the_address_of_its_vm(tmp_path: Path) -> None:
    for _ in range(2):
        done = run_startup(tmp_path, node=True)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "memlite.env").read_text().splitlines() == [
        'MEMLITE_PORT="11211"',
        'MEMLITE_NAME="memlite-nodes-x7k2"',
        'MEMLITE_ADVERTISE="10.42.0.9:11211"',
    ]


def test_a_node_without_a_name_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "metadata-fails").touch()
    assert run_startup(tmp_path, node=True).returncode != 0
    assert not (tmp_path / "arguments").exists()
    # The watcher retries.
    assert "--no-block start memlite-startup.service" in (tmp_path / "systemctl").read_text()
    (tmp_path / "metadata-fails").unlink()
    assert run_startup(tmp_path, node=True).returncode == 0


def test_a_load_generator_gets_only_the_package(tmp_path: Path) -> None:
    assert run_startup(tmp_path, service=False).returncode == 0
    assert (tmp_path / "arguments").read_text().splitlines() == [
        *install("load"),
        "--no-service",
    ]


def test_a_failed_installation_is_left_to_the_watcher(tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    assert run_startup(tmp_path).returncode != 0
    assert not (tmp_path / "var/lib/memlite-startup/applied").exists()
    assert "--no-block start memlite-startup.service" in (tmp_path / "systemctl").read_text()


def test_the_agent_is_installed_last_and_retried(tmp_path: Path) -> None:
    (tmp_path / "agent-fails").touch()
    assert run_startup(tmp_path, agent="2.70.0").returncode != 0
    # memlite serves in the meantime.
    assert (tmp_path / "arguments").exists()
    assert not (tmp_path / "var/lib/memlite-startup/applied").exists()
    (tmp_path / "agent-fails").unlink()
    assert run_startup(tmp_path, agent="2.70.0").returncode == 0
    assert (tmp_path / "agent").read_text() == "2.70.0\n"
    assert (tmp_path / "agent.yaml").read_text() == agent_config()
    assert (tmp_path / "var/lib/memlite-startup/applied").exists()


def run_agent(root: Path, config: str) -> list[str]:
    """Run the agent's installer with its paths moved under a folder; return its calls."""
    text = (MODULE / "startup_agent.sh").read_text()
    for place in ("/etc/apt/sources.list.d/", "/etc/google-cloud-ops-agent/", "/etc/os-release"):
        text = text.replace(place, f"{root}{place}")
    (root / "etc/apt/sources.list.d").mkdir(parents=True, exist_ok=True)
    (root / "etc/os-release").write_text("VERSION_ID='12'\nVERSION_CODENAME=bookworm\n")
    (root / "wanted.yaml").write_text(config)
    (root / "bin").mkdir(exist_ok=True)
    for name, body in {
        "apt-get": 'echo apt-get "$@" >>ROOT/calls\n'
        'case $* in *google-cloud-ops-agent=*) echo "${@: -1}" >ROOT/installed ;; esac',
        "dpkg-query": 'printf "install ok installed %s" "$(cat ROOT/installed 2>/dev/null)"',
        "systemctl": 'echo systemctl "$@" >>ROOT/calls',
    }.items():
        file = root / "bin" / name
        file.write_text(f"#!/usr/bin/env bash\n{body}\n".replace("ROOT", str(root)))
        file.chmod(0o755)
    (root / "calls").write_text("")
    subprocess.run(
        ["bash", "-c", text, "memlite-agent", "2.70.0", root / "wanted.yaml"],
        env={**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}"},
        check=True,
    )
    return (root / "calls").read_text().splitlines()


def test_the_agent_is_installed_once_in_its_version(tmp_path: Path) -> None:
    update, install, restart = run_agent(tmp_path, "first\n")
    assert update.endswith(" update")
    assert install.endswith(" google-cloud-ops-agent=2.70.0~debian12")
    assert restart == "systemctl restart google-cloud-ops-agent"
    assert (tmp_path / "etc/apt/sources.list.d/google-cloud-ops-agent.list").read_text() == (
        "deb [signed-by=/usr/share/keyrings/cloud.google.gpg] "
        "https://packages.cloud.google.com/apt google-cloud-ops-agent-bookworm-2 main\n"
    )
    assert run_agent(tmp_path, "first\n") == []
    assert run_agent(tmp_path, "second\n") == [restart]
    assert (tmp_path / "etc/google-cloud-ops-agent/config.yaml").read_text() == "second\n"
