import pytest

from memlite.shell.display import Style
from memlite.shell.hot_keys import hot_keys_table


def rows(*keys, interval=256):
    """Return a server's report on keys: name, requests, error."""
    found = [("hotkeys:sample_interval", str(interval)), ("hotkeys:requests", "10000")]
    for rank, (key, requests, error) in enumerate(keys, 1):
        found += [
            (f"hotkeys:{rank}:key", key),
            (f"hotkeys:{rank}:requests", str(requests)),
            (f"hotkeys:{rank}:error", str(error)),
            (f"hotkeys:{rank}:per_second", "12.5"),
            (f"hotkeys:{rank}:share", "20.00"),
        ]
    return found


def test_a_table():
    assert hot_keys_table(
        rows(("front-page", 12_800, 0), ("b", 1280, 0)), Style(terminal=True)
    ) == [
        " share  per second  requests  key",
        "20.00%        12.5    12,800  front-page",
        "20.00%        12.5     1,280  b",
    ]


@pytest.mark.parametrize(
    ("requests", "error", "interval"), [(256, 0, 256), (1279, 0, 256), (5000, 4000, 256), (4, 0, 1)]
)
def test_keys_with_few_samples_are_left_out(requests, error, interval):
    found = rows(("hot", 100_000, 0), ("once", requests, error), interval=interval)
    *table, note = hot_keys_table(found, Style())
    assert [line.split()[-1] for line in table] == ["key", "hot"]
    assert note == "(1 key with fewer than 5 samples not shown)"


def test_only_keys_with_few_samples():
    found = rows(("a", 256, 0), ("b", 256, 0))
    assert hot_keys_table(found, Style()) == ["(2 keys with fewer than 5 samples not shown)"]


def test_no_keys():
    assert hot_keys_table(rows(), Style()) == ["(no key is requested often)"]
