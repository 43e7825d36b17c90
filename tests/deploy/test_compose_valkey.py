"""The compose file with a Valkey Cluster, run as processes in place of containers."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.ports import unused_port
from tests.support.servers import running
from tests.support.stores import PROGRAM
from tests.support.waiting import wait_until

COMPOSE = ROOT / "deploy" / "compose" / "valkey.yaml"
STORES = tuple(f"valkey{number}" for number in range(1, 7))
SERVERS = ("memlite1", "memlite2")
CLIENT = shutil.which("valkey-cli") or shutil.which("redis-cli")


def compose() -> dict[str, Any]:
    """Return the compose file, with the settings' defaults."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is needed to read the compose file")
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text())
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_services_are_confined_and_only_memlite_is_published() -> None:
    found = compose()
    services = found["services"]
    assert set(services) == {"cluster", "smoke", *STORES, *SERVERS}
    published = {name: one["ports"] for name, one in services.items() if "ports" in one}
    # Without authentication only this machine may connect.
    assert published == {
        "memlite1": ["127.0.0.1:11211:11211"],
        "memlite2": ["127.0.0.1:11212:11211"],
    }
    for name, service in services.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
        if name in STORES:
            # The only places that it may write to.
            assert service["volumes"] == [f"{name}:/data"]
            assert name in found["volumes"]


def test_every_store_is_a_member() -> None:
    services = compose()["services"]
    addresses = {services[name]["networks"]["cache"]["ipv4_address"] for name in STORES}
    script = services["cluster"]["command"][2]
    assert set(re.findall(r"(172[.\d]+):6379", script)) == addresses
    assert set(services["cluster"]["depends_on"]) == set(STORES)
    for name in SERVERS:
        assert services[name]["environment"]["MEMLITE_BACKEND"].split("/")[2].split(":")[0] in (
            addresses
        )


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None or CLIENT is None, reason="there is no store, or no client")
def test_the_command_lines_serve_and_pass_the_smoke_test(tmp_path: Path) -> None:
    services = compose()["services"]
    with ExitStack() as stack:
        replaced = {}
        for name in STORES:
            port = unused_port()
            own = tmp_path / name
            own.mkdir()
            words = services[name]["command"]
            words = [str(PROGRAM), *words[1:-1], str(own), "--bind", "127.0.0.1"]
            words += ["--port", str(port), "--cluster-port", str(unused_port())]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            replaced[services[name]["networks"]["cache"]["ipv4_address"]] = port

        def with_ports(text: str) -> str:
            for address, port in replaced.items():
                text = text.replace(f"{address}:6379", f"127.0.0.1:{port}")
                text = text.replace(f"-h {address}", f"-p {port}")
            return text

        for port in replaced.values():
            ping = [str(CLIENT), "-p", str(port), "ping"]
            assert wait_until(
                lambda ping=ping: (
                    b"PONG" in subprocess.run(ping, capture_output=True, check=False).stdout
                )
            )
        script = with_ports(services["cluster"]["command"][2]).replace("valkey-cli", str(CLIENT))
        for _ in range(2):  # the second time, the cluster already exists
            done = subprocess.run(
                ["sh", "-c", script], capture_output=True, text=True, timeout=100, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
        environments = [services[name]["environment"] for name in SERVERS]
        # A replica on a busy machine may take longer than half a second.
        more = "&timeout=40&deadline=60&wait_timeout=20"
        servers = [
            stack.enter_context(
                running(
                    "memlite",
                    environment={
                        **one,
                        "MEMLITE_BACKEND": with_ports(one["MEMLITE_BACKEND"]) + more,
                    },
                )
            )
            for one in environments
        ]
        port = str(servers[1].port)
        for script in ("health.py", "smoke.py"):
            done = subprocess.run(
                [sys.executable, ROOT / "scripts" / "containers" / script],
                env={
                    **os.environ,
                    "MEMLITE_PORT": port,
                    "MEMCACHED_HOST": "127.0.0.1",
                    "MEMCACHED_PORT": port,
                },
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        with servers[0].connect() as one, servers[1].connect() as other:
            assert one.ask(b"set shared 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
            other.send(b"get shared\r\n")
            assert other.line() == b"VALUE shared 0 5\r\n"
