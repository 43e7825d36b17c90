"""Host names of nodes are looked up in advance, and a failing name server does no harm."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from memlite.cluster.membership import host_addresses
from memlite.cluster.membership.host_addresses import HostAddresses


class NameServer:
    """Answers with a host's entry in `addresses`; raises it if it is an error, awaits an event."""

    def __init__(self) -> None:
        self.addresses: dict[str, Any] = {}
        self.asked: list[str] = []
        self.now = 0.0

    def time(self) -> float:
        return self.now

    async def getaddrinfo(self, host: str, port: None, *, type: int) -> list[Any]:  # noqa: A002 - as in asyncio
        assert (port, type) == (None, socket.SOCK_STREAM)
        self.asked.append(host)
        found = self.addresses[host]
        if isinstance(found, Exception):
            raise found
        if isinstance(found, asyncio.Event):
            await found.wait()
        return [(family, 0, 0, "", (address, 0)) for family, address in found]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> NameServer:
    server = NameServer()
    kept = {name: getattr(asyncio, name) for name in ("wait", "ensure_future")}
    monkeypatch.setattr(
        host_addresses, "asyncio", SimpleNamespace(get_running_loop=lambda: server, **kept)
    )
    return server


async def test_names_are_looked_up_once_a_minute(names: NameServer) -> None:
    hosts = HostAddresses()
    names.addresses["one"] = [(socket.AF_INET6, "::1"), (socket.AF_INET, "10.0.0.1")]
    names.addresses["two"] = [(socket.AF_INET6, "::2")]
    for names.now in (0.0, 59.0):
        await hosts.look_up(["one", "10.0.0.9", "::9", "two"])
        assert [hosts.ip(host) for host in ("one", "two", "10.0.0.9", "other")] == [
            "10.0.0.1", "::2", "", "",
        ]  # fmt: skip
        assert names.asked == ["one", "two"]
    names.now = 60.0
    names.addresses["one"] = [(socket.AF_INET, "10.0.0.2")]
    names.addresses["two"] = OSError("no answer")
    await hosts.look_up(["one", "two"])
    assert (hosts.ip("one"), hosts.ip("two")) == ("10.0.0.2", "::2")
    await hosts.look_up(["two"])
    assert (hosts.ip("one"), hosts.ip("two")) == ("", "::2")


@pytest.mark.parametrize("error", [OSError("unknown"), UnicodeError("label too long")])
async def test_a_name_that_cannot_be_resolved(names: NameServer, error: Exception) -> None:
    hosts = HostAddresses()
    names.addresses["no"] = error
    names.addresses["yes"] = [(socket.AF_INET, "10.0.0.1")]
    await hosts.look_up(["no", "yes"])
    assert (hosts.ip("no"), hosts.ip("yes")) == ("", "10.0.0.1")


async def test_a_name_server_that_does_not_answer(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_addresses, "_SECONDS", 0.01)
    hosts = HostAddresses()
    names.addresses["slow"] = asyncio.Event()
    await hosts.look_up(["slow"])
    assert hosts.ip("slow") == ""
