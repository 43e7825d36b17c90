"""Settings and options for all tests."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

# The time of an example depends on the machine and on the imports it causes more than on the code
# under test. Each run draws different examples; .ci/run always draws the same ones.
settings.register_profile("memlite", deadline=None, max_examples=50)
settings.register_profile("ci", settings.get_profile("ci"), max_examples=50)
settings.load_profile("memlite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--marked", metavar="MARK", help="collect only the files in which this mark is used"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that do not use the mark: with ``-m`` alone, pytest would import all files."""
    mark = config.getoption("--marked")
    if mark is None or collection_path.suffix != ".py":
        return None
    return f"mark.{mark}" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection(session: pytest.Session) -> None:
    """Collect without the garbage collector: objects created here live until the end."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let half of the workers of pytest-xdist start with the slow tests, the longest first.

    Slow tests mostly wait, so fast tests can use the processors meanwhile. pytest-xdist divides
    the list into one part for each worker; a worker that has finished its part takes tests from
    the longest remaining one.
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

    Each part begins with some of the tests listed in tests/longest.txt. Then, the tests of a file
    stay together, as their fixtures may be slow and every worker that runs one creates them.
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
    """Exempt the objects created by test collection from garbage collection.

    There are more than a million. Every full collection, and so every gc.collect() of a test,
    would traverse all of them.
    """
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Append the numbers of passed, failed and skipped tests to the file MEMLITE_TEST_TALLY."""
    path = os.environ.get("MEMLITE_TEST_TALLY")
    if path is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    stats = terminalreporter.stats
    passed, skipped = len(stats.get("passed", ())), len(stats.get("skipped", ()))
    failed = len(stats.get("failed", ())) + len(stats.get("error", ()))
    with Path(path).open("a", encoding="utf-8") as tally:
        tally.write(f"{passed} {failed} {skipped}\n")
