"""The dashboard of a proxy in a browser, with real nodes."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from tests.support.clusters import cluster
from tests.support.dashboard import (
    CHROMIUM,
    check_layout,
    check_what_assistive_technology_sees,
    chromium,
    opened,
    wait_for_text,
)
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser (apt install chromium)"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def is_ready(front: RunningServer) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", front.http_port, timeout=60)
    try:
        connection.request("GET", "/readyz")
        return bool(json.loads(connection.getresponse().read())["ready"])
    finally:
        connection.close()


def rows(page: Any) -> list[list[str]]:
    """Return the rows of the table of nodes."""
    return [row.locator("td").all_inner_texts() for row in page.locator("#nodes tbody tr").all()]


def test_the_page_of_a_proxy(browser: Any) -> None:
    with (
        running("memlite") as one,
        running("memlite") as other,
        proxy([one, other], "--http", "0", "--in-flight", "4") as front,
    ):
        assert wait_until(lambda: is_ready(front))
        with opened(browser, f"http://127.0.0.1:{front.http_port}") as page:
            with front.connect() as wire:
                for number in range(30):
                    assert wire.ask(b"set key%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
                for number in range(20, 40):
                    wire.send(b"get key%d\r\n" % number)
                    wire.until(b"END\r\n")
            wait_for_text(page, "now-reads", "50\u00a0% of all 20 reads")
            wait_for_text(page, "now-nodes", "2 of 2 up")
            wait_for_text(page, "now-flight", "0 of 4 in flight, 0 not sent")
            assert page.locator("#commands").inner_text().split("\n")[1:] == [
                "get\thit\t10", "get\tmiss\t10", "store\tstored\t30",
            ]  # fmt: skip
            # Figures that a proxy does not have are hidden.
            for name in ("now-memory", "chart-memory", "chart-evictions", "store"):
                assert page.locator(f"#{name}").is_hidden()
            page.get_by_role("button", name="waiting").click()
            check_layout(page)
            check_what_assistive_technology_sees(page)
            assert [row[1] for row in rows(page)] == ["up", "up"]
            said = page.locator("#ring").get_attribute("aria-label")
            assert said.count(", up") == 2
            other.process.kill()
            wait_for_text(page, "state", "1 of 2 nodes is down")
            wait_for_text(page, "now-nodes", "1 of 2 up")
            page.wait_for_function(
                "ring => ring.ariaLabel.endsWith('down')",
                arg=page.locator("#ring").element_handle(),
            )
            (up, down) = rows(page)
            assert (up[1], down[1].partition(":")[0]) == ("up", "down")
            assert down[0] == f"2. 127.0.0.1:{other.port}"


def test_a_move_of_keys_is_shown(browser: Any) -> None:
    with cluster() as here:
        here.join("a")
        front = here.proxy("--http", "0")
        assert wait_until(lambda: is_ready(front))
        with opened(browser, f"http://127.0.0.1:{front.http_port}") as page:
            assert page.locator("#move").is_hidden()
            with front.connect() as wire:
                for number in range(600):
                    assert wire.ask(b"set key%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
            mover = here.begin("add", here.start("b", "memlite"), "--rate", "20")
            wait_for_text(page, "move-phase", "Moving keys: phase move")
            page.wait_for_function(
                "note => /^[1-9][0-9]* of [0-9]+ items/.test(note.textContent)",
                arg=page.locator("#move-note").element_handle(),
            )
            assert 0 < page.locator("#move-progress").evaluate("bar => bar.value") < 1
            shares = [row[2] for row in rows(page)]
            assert shares[0].startswith("100\u00a0% → ")
            assert shares[1].startswith("0\u00a0% → ")
            check_layout(page)
            mover.kill()
            mover.wait()
