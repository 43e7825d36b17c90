"""Options of servers and proxies that the load tester starts: which exist, and their checks."""

import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.server_options import (
    memcached_flags,
    proxy_launch,
    proxy_options,
    server_flags,
    server_options,
)
from tests.support.servers import needs_memcached


def test_only_options_that_a_measurement_may_change_exist() -> None:
    assert {"durability", "near-cache", "eviction", "memory-limit", "write-back"} <= set(
        server_options()
    )
    assert {"in-flight", "replicas", "write", "hash", "strict", "loop"} <= set(proxy_options())
    for ours in ("port", "listen", "backend", "daemon", "enable-ssl", "dialect"):
        assert ours not in server_options()
        assert ours not in proxy_options()
    assert not {"nodes", "topology", "cluster", "node-tls", "help"} & set(proxy_options())


def test_options_become_arguments() -> None:
    given = [("near-cache", "16m"), ("write-back", "on"), ("disable-cas", "off")]
    assert server_flags(given) == ["--near-cache=16m", "--write-back"]
    launch = proxy_launch([("replicas", "2"), ("hash", "jump"), ("strict", "yes")], 3)
    assert (launch.topology.replicas, launch.topology.hash) == (2, "jump")
    assert launch.flags == ("--strict",)
    assert launch.given == ("--replicas=2", "--hash=jump", "--strict")
    hot = proxy_launch([("hot-key", "a"), ("hot-key", "b")], 2).topology.hot_keys
    assert [one.key for one in hot] == [b"a", b"b"]


@needs_memcached
def test_memcached_has_only_its_own_options() -> None:
    assert memcached_flags([("threads", "2"), ("extended", "idle_timeout=0")]) == [
        "--threads=2",
        "--extended=idle_timeout=0",
    ]
    with pytest.raises(ConfigError, match="near-cache: memcached has no such option"):
        memcached_flags([("near-cache", "16m")])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("durabilty", "none")], "durabilty: memlite has no such option, did you mean durability"),
        ([("durability", "never")], "durability"),
        ([("port", "1")], "port: the load tester sets this option itself"),
        ([("loop", "uvloop"), ("loop", "asyncio")], "loop is given twice"),
        ([("write-back", "perhaps")], "write-back: must be"),
        ([("near-cache", "1")], "must be 0 or at least 1m"),
    ],
)
def test_invalid_options_of_servers(given: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^bench: --server-option.*{message}"):
        server_flags(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("in-fligth", "3")], "in-fligth: a proxy has no such option, did you mean in-flight"),
        ([("topology", "x")], "topology: the load tester sets this option itself"),
        ([("in-flight", "many")], "in-flight: must be from 1 to"),
        ([("replicas", "4")], "from 1 to the number of nodes, 3, not 4"),
        ([("replicas", "2"), ("on-return", "keep")], "on_return"),
        ([("trace-keys", "on")], "requires --trace FILE"),
    ],
)
def test_invalid_options_of_proxies(given: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^bench: --proxy-option.*{message}"):
        proxy_launch(given, 3)
