"""Damaged files: torn ends are dropped, any other damage is refused."""

import asyncio
import logging
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlite.backends.jsonfile.load import load
from memlite.core.errors import StartError
from tests.support.filestore import State, contents, opened, put, read, refusal, state

ITEMS = {b"text": b"value", b"\xff": bytes(range(256)), b"big": b"x" * 300, "ü".encode(): b""}


class Store:
    """A snapshot, two journals that continue it, and their contents."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "cache.json"
        self.after: list[State] = []  # each line of the last journal, including the header
        self.state: State = {}
        asyncio.run(self._fill())
        self.files = contents(self.path)
        self.first, self.last = sorted(name for name in self.files if "journal" in name)

    async def _fill(self) -> None:
        async with opened(self.path) as backend:
            for key, value in ITEMS.items():
                await put(backend, key, value, flags=7)
            await put(backend, b"flushed later", b"1")
        async with opened(self.path, kill=True) as backend:
            await put(backend, b"first", b"1")
            await put(backend, b"text", b"changed")
            # Leave the files as an interrupted compaction would.
            backend._snapshot_owed = False
            real, backend._install = backend._install, None  # type: ignore[method-assign]
            with pytest.raises(TypeError):
                await backend._compact()
            backend._install = real  # type: ignore[method-assign]
            self.after.append(state(backend))
            await put(backend, b"second", b"2" * 50, expires=4e9)
            self.after.append(state(backend))
            await backend.delete(b"first")
            self.after.append(state(backend))
            await put(backend, b"second", b"3")
            self.after.append(state(backend))
            self.state = state(backend)
        # The last line only says that the lines before it are durable.
        self.after.append(self.state)

    def write(self, files: dict[str, bytes]) -> None:
        for file in self.path.parent.iterdir():
            file.unlink()
        for name, data in files.items():
            (self.path.parent / name).write_bytes(data)

    def with_changed(self, name: str, data: bytes) -> "Store":
        self.write({**self.files, name: data})
        return self

    def loaded(self) -> State:
        """Read the files without a backend, which is fast enough for thousands of them."""
        return {
            key: (item.value, item.flags, item.expires, item.version)
            for key, item in load(self.path).items.items()
        }


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("a store"))


@pytest.fixture(autouse=True)
def _whole(store):
    store.write(store.files)


def test_undamaged_files_can_be_opened(store):
    assert store.loaded() == store.state
    assert read(store.path) == store.state


# Single bytes


def flips(data: bytes, mask: int) -> list[bytes]:
    return [data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :] for at in range(len(data))]


@pytest.mark.parametrize(
    "mask", [1, 0x80, *(pytest.param(mask, marks=pytest.mark.slow) for mask in (4, 0x20))]
)
@pytest.mark.parametrize("which", ["snapshot", "first", "last"])
def test_a_flipped_bit_is_refused_or_harmless(store, which, mask):
    name = {"snapshot": "cache.json", "first": store.first, "last": store.last}[which]
    refused = 0
    for number, data in enumerate(flips(store.files[name], mask)):
        file = store.path.parent / name
        file.write_bytes(data)
        try:
            found = store.loaded()
        except StartError:
            refused += 1
            assert file.read_bytes() == data
        else:
            assert found == store.state, f"byte {number}: {data[max(0, number - 30) :][:60]!r}"
    # The harmless ones are in the name of a checksum, in white space at the end of a snapshot, or
    # in the last line of a journal, which changes nothing.
    last = store.files[name].splitlines()[-1] if which == "last" else b""
    assert refused >= len(store.files[name]) - len(last) - 8


@settings(max_examples=150)
@given(st.data())
def test_damage_anywhere_is_refused_or_harmless(store, data):
    name = data.draw(st.sampled_from(sorted(store.files)))
    original = store.files[name]
    at = data.draw(st.integers(0, len(original) - 1))
    size = data.draw(st.integers(1, 40))
    # Zeros are not used, because a power failure leaves zeros.
    other = data.draw(st.binary(max_size=40).map(lambda part: part.replace(b"\0", b"\1")))
    damaged = original[:at] + other + original[at + size :]
    if name == store.last:
        note, line_end = original.rindex(b'"synced":'), original.rindex(b"\n", 0, -1)
        if at + size >= len(original) or (at <= line_end and at + size > note):
            # No line says that the last change is durable any more, so it counts as a torn end.
            return
    store.with_changed(name, damaged)
    try:
        found = store.loaded()
    except StartError:
        assert contents(store.path) == {**store.files, name: damaged}
    else:
        assert found == store.state


@pytest.mark.parametrize("rest", [b"", b"\0" * 2, b"\0" * 5000, b'{"crc":12', b"\0\0\n\0\0"])
def test_everything_before_a_torn_end_is_loaded(store, caplog, rest):
    caplog.set_level(logging.WARNING)
    data = store.files[store.last]
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data) + 1):
        whole = sum(end <= length for end in ends)
        if rest and length in (0, len(data)) and rest[:1] != b"\0":
            continue
        store.with_changed(store.last, data[:length] + rest)
        caplog.clear()
        found = store.loaded()
        assert found == store.after[max(0, whole - 1)], length
        good = ends[whole - 1] if whole else 0
        torn = length - good + len(rest)
        if torn and (store.path.parent / store.last).stat().st_size != length + len(rest):
            assert f"dropped its last {torn} bytes" in caplog.text
        if whole:
            assert (store.path.parent / store.last).read_bytes() == data[:good]


@pytest.mark.parametrize("back", [1, 10, 40, 200])
def test_after_a_torn_end_the_server_continues(store, back):
    store.with_changed(store.last, store.files[store.last][:-back])

    async def body():
        async with opened(store.path, kill=True) as backend:
            await put(backend, b"new", b"value")
            return state(backend)

    expected = asyncio.run(body())
    assert expected[b"new"][0] == b"value"
    assert read(store.path) == expected
    assert read(store.path) == expected


def test_truncated_snapshots_are_refused(store):
    data = store.files["cache.json"]
    for length in range(len(data) - 1):
        store.with_changed("cache.json", data[:length])
        with pytest.raises(StartError):
            store.loaded()
        assert contents(store.path) == {**store.files, "cache.json": data[:length]}
    store.with_changed("cache.json", data[:-1])  # editors remove it
    assert store.loaded() == store.state


def test_truncated_journals_before_the_last_are_refused(store):
    data = store.files[store.first]
    ends = {at + 1 for at, byte in enumerate(data) if byte == ord("\n")}
    for length in range(1, len(data)):
        if length in ends:
            continue
        store.with_changed(store.first, data[:length])
        with pytest.raises(StartError):
            store.loaded()
        assert contents(store.path) == {**store.files, store.first: data[:length]}


# Lines


@pytest.mark.parametrize("which", ["snapshot", "first", "last"])
@pytest.mark.parametrize("how", ["removed", "doubled", "swapped"])
def test_removed_duplicated_or_swapped_lines_are_refused(store, which, how):
    name = {"snapshot": "cache.json", "first": store.first, "last": store.last}[which]
    lines = store.files[name].splitlines(keepends=True)
    for at in range(len(lines) - 1):
        changed = lines.copy()
        if how == "removed":
            del changed[at]
        elif how == "doubled":
            changed.insert(at, lines[at])
        else:
            changed[at], changed[at + 1] = changed[at + 1], changed[at]
        store.with_changed(name, b"".join(changed))
        if which == "last" and at == len(lines) - 2 and how == "doubled":
            # Everything durable is intact.
            assert store.loaded() == store.state
            continue
        message = refusal(store.path)
        assert "damaged" in message
        assert "Nothing was changed" in message


def test_a_duplicated_last_line_is_dropped(store):
    last = store.files[store.last].splitlines(keepends=True)[-1]
    store.with_changed(store.last, store.files[store.last] + last)
    assert store.loaded() == store.state


def test_swapped_journals_are_refused(store):
    store.write(
        {**store.files, store.first: store.files[store.last], store.last: store.files[store.first]}
    )
    assert "but its name says otherwise" in refusal(store.path)


# Files


def test_a_journal_missing_in_the_middle_is_refused(store):
    files = dict(store.files)
    del files[store.first]
    store.write(files)
    message = refusal(store.path)
    assert f"{store.first} is missing, but a later journal exists" in message
    # The error message says how to repair it:
    (store.path.parent / store.last).rename(store.path.parent / "away")
    assert set(read(store.path)) == {*ITEMS, b"flushed later"}


def test_a_missing_snapshot_is_refused(store):
    files = dict(store.files)
    del files["cache.json"]
    store.write(files)
    message = refusal(store.path)
    assert f"cache.json is missing, but {store.first} exists" in message
    for name in (store.first, store.last):
        (store.path.parent / name).rename(store.path.parent / f"away-{name}")
    assert read(store.path) == {}


def test_older_journals_and_temporary_files_are_removed(store):
    number = int(store.first.rpartition(".")[2])
    store.write({
        **store.files,
        "cache.json.tmp": b"half a snapshot",
        f"cache.json.journal.{number - 1}": b"older",
        "cache.json.journal.x": b"somebody else's",
        "cache.json.journal.007": b"somebody else's",
    })  # fmt: skip
    assert read(store.path) == store.state
    names = set(contents(store.path))
    assert f"cache.json.journal.{number - 1}" not in names
    assert "cache.json.tmp" not in names
    assert {"cache.json.journal.x", "cache.json.journal.007"} <= names


def test_a_refused_start_keeps_the_temporary_file_too(store):
    store.write({**store.files, "cache.json": b"{}", "cache.json.tmp": b"half a snapshot"})
    assert "damaged, or was not written by memlite" in refusal(store.path)


@pytest.mark.parametrize("begun", [b"", b'{"crc":12', b"\0" * 100])
@pytest.mark.parametrize("torn", [0, 10])
def test_a_journal_without_a_complete_header_does_not_count(store, begun, torn):
    """A full disk or a kill leaves such a journal. The one before it may have a torn end."""
    number = int(store.last.rpartition(".")[2])
    data = store.files[store.last]
    store.write({
        **store.files,
        store.last: data[: len(data) - torn],
        f"cache.json.journal.{number + 1}": begun,
    })  # fmt: skip
    assert read(store.path) == (store.after[-2] if torn else store.state)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1: not JSON"),
        (b'{"name": "somebody else\'s"}\n', "line 1: not"),
        (b"[1, 2, 3]\n", "line 1: not"),
        (b"\x7fELF\0\0\0", "line 1: not JSON"),
        (b'{"memlite":"journal","format":1,"items":[\n', "not a memlite snapshot"),
    ],
)
def test_other_files_are_refused_as_snapshots(store, data, says):
    store.with_changed("cache.json", data)
    message = refusal(store.path)
    assert says in message
    assert "move it and its journals away to start empty" in message
    for name in store.files:
        (store.path.parent / name).rename(store.path.parent / f"away-{name}")
    assert read(store.path) == {}


def test_a_newer_format_is_refused_with_advice(store):
    data = store.files["cache.json"].replace(b'"format":1', b'"format":2')
    store.with_changed("cache.json", data)
    message = refusal(store.path)
    assert "its format is 2, but this version of memlite only supports up to 1" in message
    assert "Start the version of memlite that wrote it" in message


# Repairs that error messages suggest


def follow_truncate(message: str) -> None:
    command = re.search(r"truncate -s .*?(?= and move|$)", message)
    assert command, message
    subprocess.run(command[0], shell=True, check=True)


def test_the_repair_of_a_damaged_journal_works(store):
    lines = store.files[store.last].splitlines(keepends=True)
    lines[2] = lines[2].replace(b"delete", b"dElete")
    store.with_changed(store.last, b"".join(lines))
    message = refusal(store.path)
    assert "is damaged at line 3" in message
    follow_truncate(message)
    assert read(store.path) == store.after[1]


def test_the_repair_of_a_damaged_journal_before_the_last_works(store):
    data = store.files[store.first]
    store.with_changed(store.first, data[:-20] + b"#" + data[-19:])
    message = refusal(store.path)
    assert "or move the later journals away and discard the rest with: " in message
    follow_truncate(message)
    (store.path.parent / store.last).rename(store.path.parent / "away")
    found = read(store.path)
    assert found[b"first"][0] == b"1"
    assert found[b"text"][0] == b"value"


def test_the_repair_of_a_damaged_header_works(store):
    data = store.files[store.last]
    store.with_changed(store.last, data.replace(b'"journal"', b'"Journal"', 1))
    follow_truncate(refusal(store.path))
    assert read(store.path) == store.after[0]


def test_a_snapshot_changed_by_hand_is_refused_and_the_repair_works(store):
    """A value is changed and an item added; then the checksum is removed."""
    data = store.files["cache.json"].replace(b'"value":"value"', b'"value":"by hand"')
    data = data.replace(b'"items":[\n', b'"items":[\n{"key":"added","value":"too","cas":1},\n')
    store.write({"cache.json": data})
    message = refusal(store.path)
    assert "checksum mismatch" in message
    cure = re.search(r"remove '(,\"crc\":\d+)' from this line", message)
    assert cure, message
    assert f"line {len(data.splitlines())}:" in message
    store.path.write_bytes(data.replace(cure[1].encode(), b""))
    found = read(store.path)
    assert found[b"text"][0] == b"by hand"
    assert found[b"added"][0] == b"too"
    assert found[b"\xff"][0] == ITEMS[b"\xff"]
    assert read(store.path) == found


def test_an_invalid_change_by_hand_is_refused(store):
    data = re.sub(rb',"crc":\d+', b"", store.files["cache.json"])
    assert data != store.files["cache.json"]
    number = next(
        number for number, line in enumerate(data.splitlines(), 1) if b'"key":"text"' in line
    )
    for before, after in (
        (b'"value":"value"', b'"value":"value'),
        (b'"value":"value"', b'"value":value'),
        (b'"key":"text"', b'"key_base64":"text?"'),
        (b'"key":"text"', '"key_base64":"é"'.encode()),
        (b'"flags":7', b'"flags":"7"'),
    ):
        line = next(line for line in data.splitlines() if b'"key":"text"' in line)
        store.with_changed("cache.json", data.replace(line, line.replace(before, after)))
        message = refusal(store.path)
        assert f"at line {number}: " in message


def test_line_ends_of_windows_are_accepted(store):
    data = store.files["cache.json"].replace(b"\n", b"\r\n")
    store.with_changed("cache.json", data)
    message = refusal(store.path)
    cure = re.search(r"remove '(,\"crc\":\d+)' from this line", message)
    assert cure, message
    store.path.write_bytes(data.replace(cure[1].encode(), b""))
    assert read(store.path) == store.state
    store.with_changed(store.last, store.files[store.last].replace(b"\n", b"\r\n"))
    assert "is damaged at line 1" in refusal(store.path)


# Lost versions are not reused


def test_versions_lost_with_the_machine_are_not_reused(tmp_path):
    """A client may hold the cas unique of a change that is in no file: its cas must not succeed."""
    path = tmp_path / "cache.json"

    async def body():
        async with opened(path, kill=True) as backend:
            await put(backend, b"key", b"kept")
            size = backend._journal.size
            await put(backend, b"key", b"lost")
            lost = await backend.get(b"key")
        journal = next(path.parent.glob("*.journal.*"))
        with journal.open("r+b") as file:
            file.truncate(size)
        async with opened(path, kill=True) as backend:
            assert (await backend.get(b"key")).value == b"kept"
            await put(backend, b"key", b"another")
            assert (await backend.get(b"key")).version > lost.version

    asyncio.run(body())
