"""Settings and options for all tests."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

# The time that an example takes depends on the machine and on what has to be imported for it, more
# than on what is tested. Each run draws other examples; .ci/run always draws the same.
settings.register_profile("memlite", deadline=None, max_examples=50)
settings.register_profile("ci", settings.get_profile("ci"), max_examples=50)
settings.load_profile("memlite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--marked", metavar="MARK", help="collect only the files in which this mark is used"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that do not use the mark: with ``-m`` alone pytest would import all of them."""
    mark = config.getoption("--marked")
    if mark is None or collection_path.suffix != ".py":
        return None
    return f"mark.{mark}" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection(session: pytest.Session) -> None:
    """Collect without the garbage collector: what is made here stays until the end."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have half of the workers of pytest-xdist begin with the slow tests, the longest first.

    Slow tests mostly wait, and the others need the processors meanwhile. A worker begins with one
    of as many parts of the list as there are workers; later it takes from the longest of the
    others.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    fast = [item for item in items if not item.get_closest_marker("slow")]
    waiting = workers // 2 if fast else workers
    share = -(-len(items) // workers)
    parts = parts_of_slow(slow, waiting) + [[]] * (workers - waiting)
    begin = 0
    for number, part in enumerate(parts):
        end = begin + max(share - len(part), 0)
        parts[number] = part + fast[begin:end]
        begin = end
    items[:] = [item for part in parts for item in part] + fast[begin:]


def parts_of_slow(slow: list[pytest.Item], count: int) -> list[list[pytest.Item]]:
    """Divide the slow tests into parts.

    Each begins with some of those that tests/longest.txt lists. Then those of a file follow each
    other, as their fixtures may take long and are made by each worker that runs one of them.
    """
    path = Path(__file__).with_name("longest.txt")
    names = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    places = {name: place for place, name in enumerate(names)}

    def place(item: pytest.Item) -> int:
        return places.get(item.nodeid.partition("[")[0], len(places))

    longest = sorted((item for item in slow if place(item) < len(places)), key=place)
    others = [item for item in slow if place(item) == len(places)]
    parts, begin = [], 0
    for number in range(count):
        first = longest[number::count]
        end = begin + len(slow[number::count]) - len(first)
        parts.append(first + others[begin:end])
        begin = end
    return parts


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt what has been collected from garbage collection.

    These are more than a million objects. Every full collection, and so every gc.collect() of a
    test, would go through all of them.
    """
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Append how many tests passed, failed and were skipped to the file MEMLITE_TEST_TALLY."""
    path = os.environ.get("MEMLITE_TEST_TALLY")
    if path is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    stats = terminalreporter.stats
    passed, skipped = len(stats.get("passed", ())), len(stats.get("skipped", ()))
    failed = len(stats.get("failed", ())) + len(stats.get("error", ()))
    with Path(path).open("a", encoding="utf-8") as tally:
        tally.write(f"{passed} {failed} {skipped}\n")
