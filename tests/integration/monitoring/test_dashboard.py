"""The dashboard in a browser, and the API that it reads."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from memlite.server.http.api import MAX_STREAMS
from tests.support.dashboard import (
    CHROMIUM,
    check_layout,
    check_what_assistive_technology_sees,
    chromium,
    opened,
)
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser (apt install chromium)")
NASTY = "<img/src=x>"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running("memlite", "--http", "0", "--http-keys") as server:
        use(server)
        yield server


def use(server: RunningServer) -> None:
    """Ask often enough for a key to be hot."""
    request = f"get {NASTY}\r\n".encode()
    with server.connect() as wire:
        # At least one read in 511 is sampled, and five samples make a key hot.
        for _ in range(4000):
            assert wire.ask(request) == b"END\r\n"
        for number in range(20):
            wire.send(b"set key%d 0 0 5\r\nvalue\r\n" % number)
            assert wire.line() == b"STORED\r\n"


def read(server: RunningServer, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def hottest(server: RunningServer) -> Any:
    """Return the hottest key, after requests for it; it cools down by half each minute."""
    found: list[Any] = []

    def is_hot() -> bool:
        use(server)
        found[:] = read(server, "/api/now")["hot_keys"]
        return bool(found)

    assert wait_until(is_hot)
    return found[0]


def test_the_present_agrees_with_stats(server: RunningServer) -> None:
    stats = server.stats()
    names = ("get_hits", "get_misses", "cmd_set", "evictions")

    def agrees() -> bool:  # the page is up to a second old
        now = read(server, "/api/now")
        return now["figures"]["items"] == int(stats["curr_items"]) and all(
            now["counters"][name] == int(stats[name]) for name in names
        )

    assert wait_until(agrees)
    assert read(server, "/api/now")["store"]["url"] == "memory://"


def test_the_history_grows(server: RunningServer) -> None:
    assert wait_until(lambda: len(read(server, "/api/history")["points"]) >= 1)
    found = read(server, "/api/history")
    figures, durations = found["points"][-1]
    assert len(figures) == len(found["figures"])
    assert isinstance(durations, dict)
    assert found["duration_limits_seconds"][0] == 1.024e-6


def test_keys_are_shown_only_if_asked_for(server: RunningServer) -> None:
    assert hottest(server)["key"] == NASTY
    with running("memlite", "--http", "0") as discreet:
        assert hottest(discreet)["key"] is None
        for path in ("/api/now", "/api/history"):
            assert NASTY not in json.dumps(read(discreet, path))


def test_streams_of_events_are_limited(server: RunningServer) -> None:
    connections = []
    try:
        for _ in range(MAX_STREAMS):
            connections.append(http.client.HTTPConnection("127.0.0.1", server.http_port))
            connections[-1].request("GET", "/api/events")
            reply = connections[-1].getresponse()
            assert reply.status == 200
            assert reply.readline() == b"retry: 2000\n"
        connections.append(http.client.HTTPConnection("127.0.0.1", server.http_port))
        connections[-1].request("GET", "/api/events")
        assert connections[-1].getresponse().status == 503
    finally:
        for connection in connections:
            connection.close()

    def served() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        connection.request("GET", "/api/events")
        status = connection.getresponse().status
        connection.close()
        return status == 200

    assert wait_until(served)  # the places of closed streams are free again


def test_open_streams_do_not_keep_a_server_from_stopping() -> None:
    with running("memlite", "--http", "0") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        connection.request("GET", "/api/events")
        reply = connection.getresponse()
        assert reply.readline() == b"retry: 2000\n"
        assert server.stop() == 0
        connection.close()
        assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.mark.slow
@needs_browser
def test_the_page(browser: Any, server: RunningServer) -> None:
    with opened(browser, f"http://127.0.0.1:{server.http_port}") as page:
        check_layout(page)
        check_values(page, server)
        check_what_assistive_technology_sees(page)


@pytest.mark.slow
@needs_browser
def test_the_page_recovers_after_a_refusal(browser: Any, server: RunningServer) -> None:
    streams: list[http.client.HTTPConnection] = []
    page = browser.new_page()
    origin = f"http://127.0.0.1:{server.http_port}"
    try:
        for _ in range(MAX_STREAMS):
            # The streams of earlier pages may not have ended yet.
            assert wait_until(lambda: has_stream(server, streams))
        with page.expect_response(f"{origin}/api/events") as refused:
            page.goto(f"{origin}/")
        assert refused.value.status == 503
        for stream in streams:
            stream.close()
        with page.expect_response(
            lambda reply: reply.url.endswith("/api/events") and reply.status == 200
        ):
            pass
    finally:
        page.close()
        for stream in streams:
            stream.close()


def has_stream(server: RunningServer, streams: list[http.client.HTTPConnection]) -> bool:
    """Open a stream of events and add it to `streams`, unless it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    connection.request("GET", "/api/events")
    if connection.getresponse().status != 200:
        connection.close()
        return False
    streams.append(connection)
    return True


def check_values(page: Any, server: RunningServer) -> None:
    """Check that the page follows the server, and that any key is shown as text."""
    hottest(server)
    with server.connect() as wire:
        for number in range(100, 115):
            wire.send(b"set key%d 0 0 5\r\nvalue\r\n" % number)
            assert wire.line() == b"STORED\r\n"
        stats = wire.stats()
        shown = f"{int(stats['curr_items']):,} items"
        page.wait_for_function(
            "text => document.getElementById('now-items').textContent.startsWith(text)", arg=shown
        )
        reads = f"{int(stats['cmd_get']):,} reads"
        assert reads in page.locator("#now-reads").inner_text()
        page.wait_for_function("document.getElementById('now-connections').textContent === '1'")
    page.wait_for_function(
        "key => document.querySelector('#hot tbody td').textContent === key", arg=NASTY
    )
    assert page.locator("#hot img").count() == 0
    assert page.locator("#failures").is_hidden()
    page.get_by_role("button", name="store").click()
    assert page.get_by_role("button", name="store").get_attribute("aria-pressed") == "true"
