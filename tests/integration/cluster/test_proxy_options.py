"""Server options at a proxy: those about listening, and those that it refuses."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import memlite.testing
from memlite.proxy.options import command_line, read_options
from tests.support.packets import NOOP
from tests.support.program import run_forked as run
from tests.support.proxies import node_stat, proxy
from tests.support.servers import START_SECONDS, RunningServer, Wire, running
from tests.support.waiting import wait_until

VERSION = b"VERSION 1."


@pytest.fixture(scope="module")
def node() -> Iterator[RunningServer]:
    with running("memlite") as node:
        yield node


def command(node: RunningServer) -> list[str]:
    return [sys.executable, "-P", "-m", "memlite", "proxy", "--nodes", f"127.0.0.1:{node.port}"]


def test_several_addresses(node: RunningServer) -> None:
    with memlite.testing.server(
        *("-l", "127.0.0.2"), command=command(node), start_timeout=START_SECONDS
    ) as front:
        for host, port in zip(("127.0.0.1", "127.0.0.2"), front.ports, strict=True):
            with Wire(socket.create_connection((host, port), 10)) as wire:
                assert wire.ask(b"version\r\n").startswith(VERSION)


def test_a_unix_socket_with_its_mask(node: RunningServer, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with memlite.testing.server(
        *("-a", "0600"), command=command(node), unix_socket=path, start_timeout=START_SECONDS
    ):
        assert path.stat().st_mode & 0o777 == 0o600
        with Wire(socket.socket(socket.AF_UNIX)) as wire:
            wire.sock.settimeout(10)
            wire.sock.connect(str(path))
            assert wire.ask(b"version\r\n").startswith(VERSION)
    assert not path.exists()


def test_the_limit_of_connections(node: RunningServer) -> None:
    with proxy([node], "-c", "2", "-o", "maxconns_fast") as front:
        with front.connect() as one, front.connect() as other:
            for wire in (one, other):
                assert wire.ask(b"version\r\n").startswith(VERSION)
            with front.connect() as late:
                assert late.rest() == b"ERROR Too many open connections\r\n"
        assert wait_until(lambda: front.ask(b"version\r\n").startswith(VERSION))


@pytest.mark.parametrize(
    ("protocol", "text", "binary"),
    [("auto", True, True), ("ascii", True, False), ("binary", False, True)],
)
def test_the_protocol(node: RunningServer, protocol: str, text: bool, binary: bool) -> None:
    with proxy([node], "-B", protocol) as front:
        assert front.ask(b"version\r\n").startswith(VERSION) is text
        assert front.ask(NOOP).startswith(b"\x81\x0a") is binary


def test_udp_off_is_accepted(node: RunningServer) -> None:
    with proxy([node], "-U", "0", "-b", "100", "-R", "5", "-o", "idle_timeout=60") as front:
        assert wait_until(lambda: node_stat(front, node, "state") == "up")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-U", "11211"], "flag -U: a proxy does not serve UDP; leave it out, or set it to 0"),
        (["-p", "0", "-V"], "--version applies only to servers"),
        (["--print-config"], "--print-config applies only to servers"),
        (["-m", "64"], "flag -m applies only to servers"),
        (["-t", "4"], "flag -t applies only to servers"),
        (["--join", "gs://b"], "flag --join applies only to servers"),
        (["-x"], "-x"),
    ],
)
def test_other_options_are_refused_in_one_line(arguments: list[str], message: str) -> None:
    ended = run("proxy", "--nodes", "127.0.0.1:1", *arguments)
    assert ended.returncode == 64
    (line,) = ended.stderr.splitlines()
    assert line.startswith("memlite: proxy: ")
    assert message in line


def test_a_long_deadline_is_refused_with_a_cluster_and_not_with_nodes() -> None:
    cluster = ("--cluster", "memcached://127.0.0.1:1/c")
    ended = run("proxy", *cluster, "--deadline", "3.1")
    assert ended.returncode == 64
    (line,) = ended.stderr.splitlines()
    assert line.startswith("memlite: proxy: --deadline 3.1 is too long with --cluster: at most 3 s")
    for arguments in ((*cluster, "--deadline=3"), ("--nodes", "127.0.0.1:1", "--deadline=3.1")):
        read_options(command_line(), arguments)
