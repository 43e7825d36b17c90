"""Passwords and certificates on a VM: fetched from a stand-in for Secret Manager, read by memlite.

Only systemctl is replaced: it sends the signal that systemd would send to memlite.
"""

import base64
import json
import os
import pwd
import shutil
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.deploy.module import MODULE, SCRIPTS, shipped_unit
from tests.support.certificates import Authority
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

ME = pwd.getpwuid(os.getuid()).pw_name
VERSION = "projects/p/secrets/{}/versions/latest"


class SecretManager(ThreadingHTTPServer):
    """Secrets by version, for clients with a token from the metadata server."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.secrets: dict[str, bytes] = {}


class _Handler(BaseHTTPRequestHandler):
    server: SecretManager

    def do_GET(self) -> None:
        if self.path.endswith("/service-accounts/default/token"):
            self.answer({"access_token": "good"})
        elif self.headers["Authorization"] != "Bearer good":
            self.send_error(401)
        else:
            name = self.path.removeprefix("/v1/").removesuffix(":access")
            if name not in self.server.secrets:
                self.send_error(403)
                return
            data = base64.b64encode(self.server.secrets[name]).decode()
            self.answer({"name": name, "payload": {"data": data}})

    def answer(self, what: object) -> None:
        body = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Machine:
    """The files of a VM, and the commands that it runs."""

    def __init__(self, root: Path, manager: SecretManager) -> None:
        self.root = root
        self.manager = manager
        self.folder = root / "secrets"
        self.list = root / "secrets.list"
        self.wants()

    def wants(self, *names: str) -> None:
        self.list.write_text("".join(f"{name} {VERSION.format(name)}\n" for name in names))

    def put(self, name: str, content: bytes) -> None:
        self.manager.secrets[VERSION.format(name)] = content

    def fetch(self, *arguments: str, reloads: int = 0) -> subprocess.CompletedProcess[str]:
        systemctl = self.root / "systemctl"
        signal = f"kill -HUP {reloads}\n" if reloads else ""
        systemctl.write_text(f'#!/bin/sh\necho "$@" >>{self.root}/calls\n{signal}')
        systemctl.chmod(0o755)
        return subprocess.run(
            [
                sys.executable,
                MODULE / "startup_secrets.py",
                *arguments,
                "--list",
                self.list,
                "--folder",
                self.folder,
                "--owner",
                ME,
            ],
            env={
                "PATH": f"{self.root}:{os.environ['PATH']}",
                "METADATA_URL": self.manager.url,
                "SECRETS_URL": self.manager.url,
                "no_proxy": "127.0.0.1",
            },
            capture_output=True,
            text=True,
        )

    def calls(self) -> list[str]:
        file = self.root / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with SecretManager() as manager:
        thread = threading.Thread(target=manager.serve_forever)
        thread.start()
        yield Machine(tmp_path, manager)
        manager.shutdown()
        thread.join()


def test_only_memlite_can_read_the_files(machine: Machine) -> None:
    machine.wants("users")
    machine.put("users", b"web:correct-horse\n")
    old = os.umask(0)
    try:
        done = machine.fetch()
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr
    assert (machine.folder / "users").read_bytes() == b"web:correct-horse\n"
    assert stat.S_IMODE((machine.folder / "users").stat().st_mode) == 0o600
    assert stat.S_IMODE(machine.folder.stat().st_mode) == 0o700
    assert "correct-horse" not in done.stdout + done.stderr
    assert machine.calls() == []


def test_memlite_is_notified_of_changes_only(machine: Machine) -> None:
    machine.wants("users")
    machine.put("users", b"web:first-password\n")
    assert machine.fetch("--reload").returncode == 0
    assert machine.fetch("--reload").returncode == 0
    assert machine.calls() == ["try-reload-or-restart memlite.service"]
    machine.put("users", b"web:second-password\n")
    done = machine.fetch("--reload")
    assert done.stdout == "memlite-secrets: users is new\n"
    assert len(machine.calls()) == 2


def test_files_that_are_no_longer_wanted_are_removed(machine: Machine) -> None:
    machine.wants("users")
    machine.put("users", b"web:first-password\n")
    machine.fetch()
    machine.wants()
    assert machine.fetch().returncode == 0
    assert list(machine.folder.iterdir()) == []


def test_a_secret_that_cannot_be_read_is_reported(machine: Machine) -> None:
    machine.wants("users")
    done = machine.fetch()
    assert done.returncode == 1
    assert done.stderr == (
        "memlite-secrets: error: projects/p/secrets/users/versions/latest: "
        "HTTP Error 403: Forbidden\n"
    )
    machine.put("users", b"web:first-password\n")
    assert machine.fetch().returncode == 0
    # Later, memlite must be able to restart although Secret Manager does not answer.
    machine.manager.secrets.clear()
    done = machine.fetch("--reload")
    assert done.returncode == 0
    assert "stay in use" in done.stderr
    assert (machine.folder / "users").read_bytes() == b"web:first-password\n"
    assert machine.calls() == []


def test_a_certificate_waits_for_its_key(machine: Machine, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first, second = authority.issue("first"), authority.issue("second")
    machine.wants("tls_certificate", "tls_key")
    machine.put("tls_certificate", first.cert.read_bytes())
    machine.put("tls_key", first.key.read_bytes())
    assert machine.fetch().returncode == 0
    machine.put("tls_certificate", second.cert.read_bytes())
    done = machine.fetch("--reload")
    assert done.returncode == 0
    assert "KEY_VALUES_MISMATCH" in done.stderr
    assert (machine.folder / "tls_certificate").read_bytes() == first.cert.read_bytes()
    assert machine.calls() == []
    machine.put("tls_key", second.key.read_bytes())
    assert machine.fetch("--reload").returncode == 0
    assert (machine.folder / "tls_certificate").read_bytes() == second.cert.read_bytes()
    assert (machine.folder / "tls_key").read_bytes() == second.key.read_bytes()
    assert len(machine.calls()) == 1


def greeting(server: RunningServer, login: bytes) -> bytes:
    client = server.connect()
    client.sock.sendall(b"set auth 0 0 %d\r\n%b\r\n" % (len(login), login))
    reply: bytes = client.sock.recv(99)
    client.sock.close()
    return reply


def test_a_server_takes_a_new_password_and_certificate(machine: Machine, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first, second = authority.issue("first"), authority.issue("second")
    machine.wants("users", "tls_certificate", "tls_key")
    machine.put("users", b"web:first-password\n")
    machine.put("tls_certificate", first.cert.read_bytes())
    machine.put("tls_key", first.key.read_bytes())
    assert machine.fetch().returncode == 0
    context = ssl.create_default_context(cafile=str(authority.path))
    # The settings that the module renders.
    settings = {
        "MEMLITE_AUTH_FILE": f"{machine.folder}/users",
        "MEMLITE_ENABLE_SSL": "true",
        "MEMLITE_EXTENDED": f"ssl_chain_cert={machine.folder}/tls_certificate,"
        f"ssl_key={machine.folder}/tls_key",
    }
    with running("memlite", environment=settings, tls=context) as server:
        assert greeting(server, b"web first-password") == b"STORED\r\n"
        machine.put("users", b"web:second-password\n")
        machine.put("tls_certificate", second.cert.read_bytes())
        machine.put("tls_key", second.key.read_bytes())
        done = machine.fetch("--reload", reloads=server.process.pid)
        assert done.returncode == 0, done.stderr
        assert wait_until(lambda: greeting(server, b"web second-password") == b"STORED\r\n")
        assert greeting(server, b"web first-password") != b"STORED\r\n"
        client = server.connect()
        subject = dict(part[0] for part in client.sock.getpeercert()["subject"])
        client.sock.close()
        assert subject["commonName"] == "second"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    program = "/usr/local/sbin/memlite-secrets"
    units = {
        "memlite.service": shipped_unit().replace("/opt/memlite/current/bin/memlite", "/bin/true"),
        "memlite-secrets.service": (MODULE / "startup_secrets.service").read_text(),
        "memlite-secrets.timer": (MODULE / "startup_secrets.timer").read_text(),
    }
    for name, text in units.items():
        (tmp_path / name).write_text(text.replace(program, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in units)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    # As root, before each start.
    assert f"\nExecStartPre=+{program}\nExecStart=/opt/memlite/" in shipped_unit()
    assert "ExecReload=" in (SCRIPTS / "systemd" / "memlite.service").read_text()
