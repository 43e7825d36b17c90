"""The compose file with three nodes and a proxy, run as processes in place of containers."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import pytest

import memlite.testing
from memlite.config import load
from tests.support.paths import ROOT
from tests.support.servers import START_SECONDS, running

COMPOSE = ROOT / "deploy" / "compose" / "cluster.yaml"
NODES = ("node1", "node2", "node3")


def services() -> dict[str, Any]:
    """Return the services of the compose file, with the settings' defaults."""
    return parsed(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text()))


def parsed(text: str) -> dict[str, Any]:
    """Return the services of a compose file."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is needed to read the compose file")
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


def test_the_proxy_serves_all_nodes() -> None:
    found = services()
    assert set(found) == {"proxy", "smoke", *NODES}
    command = found["proxy"]["command"]
    assert tuple(command[command.index("--nodes") + 1].split(",")) == NODES
    # A process in a container would listen on that container's loopback.
    assert command[command.index("--listen") + 1] == "0.0.0.0"
    assert set(found["proxy"]["depends_on"]) == set(NODES)
    for name in NODES:
        environment = {key: str(value) for key, value in found[name]["environment"].items()}
        assert load([], environment).sources["memory-limit"] == "environment MEMLITE_MEMORY_LIMIT"
        assert "command" not in found[name], "it would hide a setting from this test"


def test_services_are_confined_and_only_the_proxy_is_published() -> None:
    for name, service in services().items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
        for needed in service.get("depends_on", {}).values():
            assert needed == {"condition": "service_healthy"}
        # Without authentication only this machine may connect.
        assert service.get("ports") == (["127.0.0.1:11211:11211"] if name == "proxy" else None)


@pytest.mark.slow
def test_the_command_lines_serve_and_pass_the_smoke_test() -> None:
    found = services()
    # The base image of the health check and of the smoke test is the proxy's.
    smoked = found["smoke"]["environment"]
    assert smoked == {"MEMCACHED_HOST": "proxy", "MEMCACHED_PORT": "11211"}
    with ExitStack() as stack:
        addresses = {}
        for name in NODES:
            environment = {key: str(value) for key, value in found[name]["environment"].items()}
            node = stack.enter_context(running("memlite", environment=environment))
            addresses[name] = f"127.0.0.1:{node.port}"
        words = [
            ",".join(addresses.get(part, part) for part in word.split(","))
            for word in found["proxy"]["command"]
        ]
        words[words.index("--listen") + 1] = "127.0.0.1"
        process = stack.enter_context(
            memlite.testing.server(
                command=[sys.executable, "-P", "-m", "memlite", *words],
                start_timeout=START_SECONDS,
            )
        )
        for script in ("health.py", "smoke.py"):
            done = subprocess.run(
                [sys.executable, ROOT / "scripts" / "containers" / script],
                env={
                    **os.environ,
                    "MEMLITE_PORT": str(process.port),
                    "MEMCACHED_HOST": "127.0.0.1",
                    "MEMCACHED_PORT": str(process.port),
                },
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("ok  ") == 14


def test_docker_compose_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], check=False).returncode:
        pytest.skip("docker compose is not installed")
    shown = subprocess.run(
        [docker, "compose", "-f", str(COMPOSE), "--profile", "smoke", "config"],
        env={**os.environ, "CACHE_SIZE": "96", "CACHE_PORT": "12000"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    found = parsed(shown)
    limits = [found[name]["environment"]["MEMLITE_MEMORY_LIMIT"] for name in NODES]
    assert limits == ["96"] * len(NODES)
    assert found["proxy"]["ports"][0]["published"] == "12000"
