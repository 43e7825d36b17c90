"""The dashboard in a browser."""

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from typing import Any

__all__ = [
    "CHROMIUM",
    "check_layout",
    "check_what_assistive_technology_sees",
    "chromium",
    "opened",
    "wait_for_text",
]

CHROMIUM = shutil.which("chromium")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Run a browser."""
    # Imported here: it is slow, and the workers that run the fast tests also collect these tests.
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Any, origin: str, state: str = "ready") -> Iterator[Any]:
    """Open a page that shows a state, and check that it sends requests to its own server only.

    At the end, nothing may have been written to the console.
    """
    page = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(f"{origin}/")
        wait_for_text(page, "state", state)
        yield page
        assert said == []
        assert all(url.startswith(origin) for url in asked)
    finally:
        page.close()


def wait_for_text(page: Any, name: str, text: str) -> None:
    """Wait until an element has the given text."""
    page.wait_for_function(
        "([name, text]) => document.getElementById(name).textContent === text", arg=[name, text]
    )


def check_layout(page: Any) -> None:
    """Check the page in light and dark mode and at three widths, also with axe."""
    for scheme, width in itertools.product(("light", "dark"), (1280, 800, 360)):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        _check_with_axe(page, f"{scheme}, {width} pixels")
        for table in page.locator("table:visible").all():
            assert table.evaluate("one => one.scrollWidth <= one.parentElement.clientWidth")
        for canvas in page.locator("canvas:visible").all():
            assert 150 <= canvas.bounding_box()["height"] <= 300
            page.wait_for_function("canvas => canvas.ariaLabel", arg=canvas.element_handle())


def check_what_assistive_technology_sees(page: Any, state: str = "ready") -> None:
    """Check names and roles."""
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1
    for button in page.locator("button").all():
        assert button.inner_text().strip()
    for canvas in page.locator("canvas").all():
        assert canvas.get_attribute("role") == "img"
    assert page.get_by_role("status").inner_text() == state


def _check_with_axe(page: Any, where: str) -> None:
    """Check that axe finds no barrier for people with disabilities."""
    from axe_playwright_python.sync_playwright import Axe

    # By default, axe runs all rules but experimental ones and those of WCAG's level AAA.
    found = Axe().run(page)
    assert not found.response["violations"], f"{where}:\n{found.generate_report()}"
    assert len(found.response["passes"]) > 10  # the rules ran
