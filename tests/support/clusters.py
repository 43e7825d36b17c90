"""A cluster that keeps its membership in a store, with leases of a few seconds."""

import contextlib
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memlite.cluster.membership.document import Document
from tests.support.forked import COMMAND, ForkedProcess
from tests.support.program import run_forked as run
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

__all__ = ["LEASE_SECONDS", "Cluster", "cluster"]

# Long enough for leases not to expire on a busy machine.
LEASE_SECONDS = 6.0
LONG = 120.0


class Cluster:
    """The processes of a cluster.

    Attributes:
        url: of the store.
        nodes: the nodes by name.
    """

    def __init__(self, stack: contextlib.ExitStack, lease: float) -> None:
        self._stack = stack
        self.environment = {"MEMLITE_TEST_LEASE_SECONDS": str(lease)}
        self.store = stack.enter_context(running("memlite"))
        self.url = f"memcached://127.0.0.1:{self.store.port}/test"
        self.nodes: dict[str, RunningServer] = {}

    def join(self, name: str, *arguments: str) -> RunningServer:
        """Start a node that registers itself."""
        options = ("--join", self.url, "--name", name, *arguments)
        node = self._stack.enter_context(running("memlite", *options, environment=self.environment))
        self.nodes[name] = node
        assert wait_until(lambda: name in self.places() and serves(node), LONG)
        return node

    def start(
        self,
        name: str,
        kind: str = "memcached",
        *arguments: str,
        tls: ssl.SSLContext | None = None,
    ) -> str:
        """Start a node that does not register itself; return the argument that adds it."""
        node = self._stack.enter_context(running(kind, *arguments, tls=tls))
        self.nodes[name] = node
        return f"{name}=127.0.0.1:{node.port}"

    def proxy(self, *arguments: str) -> RunningServer:
        """Start a proxy."""
        return self._stack.enter_context(proxy(self.url, *arguments, environment=self.environment))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``memlite cluster`` with the URL."""
        return run("cluster", *self.command(*arguments), **self.environment)

    def begin(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start ``memlite cluster``; kill it at the end if it is still running."""
        with Path(os.devnull).open("r+b") as nothing:
            process = ForkedProcess(
                [*COMMAND, "cluster", *self.command(*arguments)],
                (nothing, nothing, nothing),
                {**os.environ, **self.environment},
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def command(self, action: str, *arguments: str) -> list[str]:
        where = [self.url] if action in ("show", "resume", "cancel") else ["--cluster", self.url]
        return [action, *arguments, *where]

    def show(self) -> dict[str, Any]:
        """Return the output of ``memlite cluster show``."""
        shown = self.run("show", "--json")
        assert shown.returncode == 0, shown.stderr
        document: dict[str, Any] = json.loads(shown.stdout)
        return document

    def document(self) -> Document:
        """Return the content of the store, without waiting."""
        with self.store.connect() as wire:
            wire.send(b"get test/topology\r\n")
            reply = wire.until(b"END\r\n")
        return Document.decode(reply.split(b"\r\n", 1)[1][: -len(b"\r\nEND\r\n")] or None)

    def places(self) -> dict[str, str]:
        """Return by name whether each node is a member or a spare."""
        document = self.document()
        return {
            one.name: "member" if document.is_member(one.name) else "spare"
            for one in document.nodes
        }

    @property
    def phase(self) -> str:
        """The phase of the move in progress; empty for none."""
        move = self.document().move
        return "" if move is None else move.phase.value

    def wait_for_phase(self, phase: str) -> None:
        """Wait until a move is in a phase."""
        assert wait_until(lambda: self.phase == phase, LONG), f"{self.phase}, not {phase}"

    def items(self, name: str) -> int:
        """Return the number of items that a node reports."""
        return int(self.nodes[name].stats()["curr_items"])


def serves(node: RunningServer) -> bool:
    with contextlib.suppress(OSError), node.connect() as wire:
        return wire.ask(b"mn\r\n") == b"MN\r\n"
    return False


@contextlib.contextmanager
def cluster(lease: float = LEASE_SECONDS) -> Iterator[Cluster]:
    """Run a cluster without nodes."""
    with contextlib.ExitStack() as stack:
        yield Cluster(stack, lease)
