"""Metrics and health of a proxy over HTTP, with real nodes."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from tests.support.certificates import Authority, client_context
from tests.support.clusters import cluster
from tests.support.packets import Opcode, packet, store
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

PROMTOOL = shutil.which("promtool")


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RunningServer]]:
    with running("memlite") as one, running("memlite") as other:
        yield [one, other]


@pytest.fixture(params=[(), ("--in-flight", "4")], ids=["at once", "queue"])
def front(nodes: list[RunningServer], request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with proxy(nodes, "--http", "0", "--http-keys", *request.param) as front:
        wait_until_ready(front)
        yield front


def ask(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def metrics(front: RunningServer) -> dict[str, float]:
    status, body = ask(front.http_port, "/metrics")
    assert status == 200
    pairs = (line.rsplit(" ", 1) for line in body.decode().splitlines() if line[0] != "#")
    return {name: float(value) for name, value in pairs}


def commands(front: RunningServer) -> dict[tuple[str, str], float]:
    """Return the commands that were counted, by class and result."""
    said = json.loads(ask(front.http_port, "/api/now")[1])["proxy"]["commands"]
    found = {(one["class"], one["result"]): one["count"] for one in said if one["count"]}
    for (kind, result), count in found.items():
        name = f'memlite_proxy_commands_total{{class="{kind}",result="{result}"}}'
        assert wait_until(lambda name=name, count=count: metrics(front)[name] == count)
    return found


def readiness(front: RunningServer) -> tuple[int, Any]:
    status, body = ask(front.http_port, "/readyz")
    return status, json.loads(body)["reasons"]


def wait_until_ready(front: RunningServer) -> None:
    assert wait_until(lambda: readiness(front) == (200, []))


def say(wire: Wire, data: bytes) -> None:
    """Send commands at once, and wait for all replies."""
    wire.send(data + b"mn\r\n")
    wire.until(b"MN\r\n")


def test_commands_of_text_clients(front: RunningServer) -> None:
    with front.connect() as wire:
        say(wire, b"flush_all\r\n")
        say(wire, b"set a 0 0 1\r\n1\r\n")
        say(wire, b"".join(b"get %b\r\n" % key for key in (b"a", b"b", b"a", b"c")))
        say(wire, b"get a b c d e f\r\n")
        say(wire, b"add a 0 0 1\r\nx\r\nset n 0 0 1 noreply\r\n1\r\nincr n 1\r\ndecr none 1\r\n")
        say(wire, b"touch a 0\r\ngat 0 a\r\nmg a v\r\nmg none v q\r\nms m 1\r\n1\r\nmd m q\r\n")
        say(wire, b"cas a 0 0 1 999999999\r\n1\r\ndelete a\r\ndelete a\r\n")
        for _ in range(3):
            wire.send(b"get n\r\n")
            wire.until(b"END\r\n")
        wire.send(b"delete n\r\n")
        assert wire.line() == b"DELETED\r\n"
    assert wait_until(lambda: commands(front).get(("delete", "hit")) == 3)
    assert commands(front) == {
        ("get", "hit"): 2 + 1 + 1 + 3, ("get", "miss"): 2 + 5 + 1,
        ("store", "stored"): 2, ("store", "not_stored"): 1, ("store", "noreply"): 1,
        ("store", "exists"): 1, ("arithmetic", "hit"): 1, ("arithmetic", "miss"): 1,
        ("touch", "hit"): 2, ("delete", "hit"): 3, ("delete", "miss"): 1, ("other", "done"): 1,
    }  # fmt: skip


def test_commands_of_binary_clients(front: RunningServer) -> None:
    with front.connect() as wire:
        wire.send(
            packet(Opcode.FLUSH)
            + store(Opcode.SET, b"a", b"1")
            + store(Opcode.SETQ, b"b", b"1")
            + packet(Opcode.GET, b"a")
            + packet(Opcode.GETQ, b"none")
            + packet(Opcode.DELETE, b"b")
            + packet(Opcode.DELETE, b"b")
            + packet(Opcode.QUIT)
        )
        wire.rest()
    assert wait_until(lambda: commands(front).get(("delete", "miss")) == 1)
    assert commands(front) == {
        ("store", "stored"): 2, ("get", "hit"): 1, ("get", "miss"): 1, ("delete", "hit"): 1,
        ("delete", "miss"): 1, ("other", "done"): 1,
    }  # fmt: skip


def test_metrics_agree_with_stats(front: RunningServer, nodes: list[RunningServer]) -> None:
    with front.connect() as wire:
        say(wire, b"".join(b"set key%d 0 0 1\r\nx\r\n" % number for number in range(200)))
        say(wire, b"get %b\r\n" % b" ".join(b"key%d" % number for number in range(10)))
        stats = wire.stats()
        found = metrics(front)
    shares = 0.0
    for node in nodes:
        name = f"127.0.0.1:{node.port}"
        label = f'{{node="{name}",role="node"}}'
        assert found[f"memlite_proxy_node_up{label}"] == 1
        for metric, figure in {
            "requests_total": "requests", "failures_total": "failed", "refused_total": "refused",
            "timeouts_total": "timeouts", "connections_total": "connects",
            "pending_requests": "pending", "emptied_total": "flushes",
        }.items():  # fmt: skip
            expected = float(stats[f"node:{name}:{figure}"])
            assert found[f"memlite_proxy_node_{metric}{label}"] == expected, metric
        assert found[f"memlite_proxy_node_duration_seconds_count{label}"] >= 1
        shares += found[f"memlite_proxy_node_share_ratio{label}"]
    assert shares == pytest.approx(1)
    assert found["memlite_proxy_multigets_total"] == float(stats["proxy_multigets"]) == 1
    assert found["memlite_open_connections"] == float(stats["curr_connections"]) == 1
    assert found["memlite_ready"] == 1
    assert not [name for name in found if name.startswith(("memlite_items", "memlite_evict"))]
    assert found["memlite_proxy_queue_arrivals_total"] >= 201
    assert found["memlite_proxy_queue_length"] == 0
    every = 201 if "memlite_proxy_queue_in_flight_limit" in found else 1  # or a sample
    for name in ("queue_wait", "queue_service", "think"):
        assert found[f"memlite_proxy_{name}_duration_seconds_count"] >= (
            1 if name == "think" else every
        )


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool (apt install prometheus)")
def test_promtool_reads_the_metrics(front: RunningServer) -> None:
    assert PROMTOOL is not None
    _, body = ask(front.http_port, "/metrics")
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=body, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_node_that_stops_answering_and_a_killed_node() -> None:
    with (
        running("memlite") as one,
        running("memlite") as other,
        proxy([one, other], "--http", "0") as front,
    ):
        wait_until_ready(front)
        other.pause()
        reasons = ["1 of 2 nodes is down"]
        with front.connect() as wire:
            for number in range(50):
                wire.send(b"get key%d\r\n" % number)
            assert wait_until(lambda: readiness(front) == (503, reasons))
        label = f'{{node="127.0.0.1:{other.port}",role="node"}}'
        found = metrics(front)
        assert found["memlite_ready"] == 0
        assert found[f"memlite_proxy_node_up{label}"] == 0
        assert found[f"memlite_proxy_node_timeouts_total{label}"] >= 1
        assert found['memlite_proxy_nodes{state="up"}'] == 1
        assert found['memlite_proxy_nodes{state="down"}'] == 1
        assert found['memlite_proxy_commands_total{class="get",result="error"}'] > 0
        assert ask(front.http_port, "/healthz")[0] == 200
        other.process.send_signal(signal.SIGCONT)
        wait_until_ready(front)
        one.process.kill()

        def states() -> list[str]:
            said = json.loads(ask(front.http_port, "/api/now")[1])["proxy"]["nodes"]
            return [node["state"] for node in said if node["state"] == "up" or node["error"]]

        # On a busy machine, the other node may seem to be down for a moment.
        assert wait_until(lambda: states() == ["down", "up"])
        assert readiness(front)[0] == 503


def test_a_down_node_that_is_replaced_by_replicas() -> None:
    with (
        running("memlite") as one,
        running("memlite") as other,
        proxy([one, other], "--http", "0", "--replicas", "2") as front,
    ):
        wait_until_ready(front)
        one.process.kill()
        assert wait_until(lambda: node_stat(front, one, "state") == "down")
        assert readiness(front) == (200, [])
        other.process.kill()
        assert wait_until(lambda: readiness(front) == (503, ["2 of 2 nodes are down"]))


def test_a_cluster_without_nodes_is_not_ready() -> None:
    with cluster() as here:
        front = here.proxy("--http", "0")
        assert readiness(front) == (503, ["the cluster has no nodes"])
        here.join("a")
        wait_until_ready(front)
        assert metrics(front)["memlite_proxy_cluster_epoch"] >= 1
        assert metrics(front)['memlite_proxy_node_up{node="a",role="node"}'] == 1


@pytest.mark.slow
def test_a_move_of_keys() -> None:
    with cluster() as here:
        here.join("a")
        front = here.proxy("--http", "0")
        wait_until_ready(front)
        with front.connect() as wire:
            for number in range(600):
                assert wire.ask(b"set key%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
        mover = here.begin("add", here.start("b", "memlite"), "--rate", "20")
        here.wait_for_phase("move")
        assert wait_until(lambda: metrics(front)['memlite_proxy_move_phase{phase="move"}'] == 1)
        assert wait_until(lambda: metrics(front).get("memlite_proxy_move_items_moved", 0) > 0)
        found = metrics(front)
        assert found["memlite_proxy_move_items"] >= found["memlite_proxy_move_items_moved"]
        now = json.loads(ask(front.http_port, "/api/now")[1])["proxy"]
        assert now["move"]["phase"] == "move"
        assert [node["share"] for node in now["nodes"]] == [1, 0]
        assert sum(node["next_share"] for node in now["nodes"]) == pytest.approx(1)
        assert now["nodes"][1]["next_share"] > 0
        mover.kill()
        mover.wait()


def test_a_proxy_that_drains_says_so(nodes: list[RunningServer]) -> None:
    with proxy(nodes, "--http", "0") as front:
        wait_until_ready(front)
        with front.connect() as wire:
            wire.send(b"set key 0 0 5\r\nval")
            front.process.send_signal(signal.SIGUSR1)
            assert wait_until(lambda: readiness(front) == (503, ["draining"]))
            wire.send(b"ue\r\n")
            assert wire.line() == b"STORED\r\n"
        assert front.process.wait(60) == 0
        assert "Traceback" not in front.log.read_text()


def test_a_token_over_tls(nodes: list[RunningServer], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("127.0.0.1")
    file = tmp_path / "token"
    file.write_text("correct-horse-battery-staple")
    file.chmod(0o600)
    context = client_context(authority.path)
    options = ["--http", "0", "--http-token-file", str(file), *issued.flags]
    with proxy(nodes, *options, tls=context) as front:

        def scrape(token: str) -> int:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", front.http_port, timeout=60, context=context
            )
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
            status = connection.getresponse().status
            connection.close()
            return status

        assert scrape("wrong") == 401
        assert scrape("correct-horse-battery-staple") == 200
        file.write_text("another-token-of-some-length")
        front.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: scrape("another-token-of-some-length") == 200)


# Without --http

MODULES = """
import sys
from memlite.cli.main import main
code = main(["proxy", *sys.argv[1:]])
found = [n for n in sys.modules if n.startswith(("aiohttp", "memlite.server.http."))]
ours = ("memlite.proxy.counting_executors", "memlite.proxy.stats_collector",
        "memlite.telemetry.metrics")
print("imported:", *found, *(n for n in sys.modules if n.startswith(ours)))
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", [[], ["--http", "0"]])
def test_what_a_proxy_process_imports(
    nodes: list[RunningServer], tmp_path: Path, arguments: list[str]
) -> None:
    ports = tmp_path / "ports"
    process = subprocess.Popen(
        [sys.executable, "-c", MODULES, "--nodes", f"127.0.0.1:{nodes[0].port}", "-p", "0",
         "-l", "127.0.0.1", *arguments],
        env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert wait_until(ports.exists)
        text = ports.read_text()
        assert ("HTTP" in text) == bool(arguments)
        with socket.create_connection(("127.0.0.1", int(text.split()[2])), 60) as sock:
            sock.sendall(b"get key\r\nget key other\r\nstats\r\nquit\r\n")
            while sock.recv(65536):
                pass
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    imported = output.decode().split()[1:]
    assert bool(imported) == bool(arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--http-keys"], "--http-keys: requires --http"),
        (["--http-token-file", "x"], "--http-token-file: requires --http"),
        (["--http", "0", "--http-metric-names", "both"], "-metric-names applies only to servers"),
        (["--http", "localhost"], "must end in a port"),
    ],
)
def test_invalid_settings(arguments: list[str], text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memlite", "proxy", "--nodes", "127.0.0.1:1", "-p", "0", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 64
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
