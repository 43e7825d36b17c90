"""``memlite cluster plan`` asks real nodes which keys they hold."""

import json
import socket
import threading
from base64 import b64encode

import pytest

from memlite.cli.main import main
from memlite.core.errors import StartError
from tests.support.proxies import proxy
from tests.support.servers import needs_memcached, running

KEYS = [b"key:%d" % number for number in range(200)]
KEYS_IN_BASE64 = [b64encode(b"key %d" % number) for number in range(20)]


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["cluster", "plan", *arguments]) == 0
    return capsys.readouterr().out


@needs_memcached
def test_the_plan_is_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    """After the change, a proxy misses exactly the keys that were planned to move."""
    with running("memlite") as one, running("memcached") as two, running("memlite") as three:
        nodes = f"127.0.0.1:{one.port},127.0.0.1:{two.port}"
        with proxy((one, two)) as front, front.connect() as wire:
            for key in KEYS:
                wire.send(b"set %b 0 0 5\r\nvalue\r\n" % key)
            assert wire.exactly(8 * len(KEYS)) == b"STORED\r\n" * len(KEYS)
            for key in KEYS_IN_BASE64:
                assert wire.ask(b"ms %b 1 b\r\nx\r\n" % key) == b"HD\r\n"
        arguments = ("--nodes", nodes, "--add", f"127.0.0.1:{three.port}")
        document = json.loads(plan(capsys, *arguments, "--json"))
        held = len(KEYS) + len(KEYS_IN_BASE64)
        assert document["held"]["items"] == held
        assert document["elsewhere"]["items"] == 0
        assert document["moved"]["bytes"] > 5 * document["moved"]["items"] > 0
        with proxy((one, two, three)) as front, front.connect() as wire:
            wire.send(b"get %b\r\n" % b" ".join(KEYS))
            hits = wire.until(b"END\r\n").count(b"VALUE ")
            for key in KEYS_IN_BASE64:
                hits += wire.ask(b"mg %b b\r\n" % key).startswith(b"HD")
        assert document["moved"]["items"] == held - hits
        assert document["nodes"][2]["arrive"] == document["moved"]
        assert "220 items (" in plan(capsys, *arguments)


def test_nodes_that_do_not_list_their_items(capsys: pytest.CaptureFixture[str]) -> None:
    with running("memlite", "-X") as silent:
        nodes = f"127.0.0.1:{silent.port}"
        assert (
            main(["cluster", "plan", "--nodes", nodes, "--add", "b:1"]) == StartError("").exit_code
        )
        assert "refuses to list its items: ERROR metadump not allowed" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nodes = f"127.0.0.1:{taken.getsockname()[1]}"
    assert main(["cluster", "plan", "--nodes", nodes, "--add", "b:1"]) == StartError("").exit_code
    error = capsys.readouterr().err
    assert error.startswith(f"memlite: cluster plan: node {nodes}: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"OK\r\n", "did not list all of its items: connection closed"),
        (b"key=a exp=-1 size=64 \r\nkey=b exp", "did not list all of its items: connection closed"),
        (b"BUSY currently processing crawler request\r\n", "is busy with another dump; try again"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "did not list all of its items: "),
    ],
)
def test_a_node_that_does_not_list_all_items(
    reply: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def serve() -> None:
        peer, _ = node.accept()
        with peer:
            peer.recv(100)
            peer.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as node:
        thread = threading.Thread(target=serve)
        thread.start()
        nodes = f"127.0.0.1:{node.getsockname()[1]}"
        code = main(["cluster", "plan", "--nodes", nodes, "--add", "b:1"])
        thread.join()
    assert code == StartError("").exit_code
    assert message in capsys.readouterr().err


def test_a_change_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "plan", "--nodes", "a"]) != 0
    assert "cluster plan: --add or --remove is required" in capsys.readouterr().err
