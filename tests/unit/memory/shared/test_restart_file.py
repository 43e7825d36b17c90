"""A table in a file that outlives its server, in Python and in C."""

import contextlib
import fcntl
import json
import math
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memlite.core.errors import StartError
from memlite.memory.item import wire_form
from memlite.memory.shared import Mapping, MemoryFile, native, restart_file
from memlite.memory.shared.layout import DEAD, KEPT_AT, META, PARKED_AT, REGIONS, UNNAMED

SIZE = 1 << 20
ITEM = 16 * 1024
needs_compiled = pytest.mark.skipif(native() is None, reason="the table in C is not compiled")
KINDS = [pytest.param(False, id="pure"), pytest.param(True, id="native", marks=needs_compiled)]


@contextlib.contextmanager
def opened(
    path: Path, *, compiled: bool, now: float | None = None, size: int = SIZE, item: int = ITEM
) -> Iterator[Mapping]:
    file = MemoryFile(str(path))
    mapping = Mapping(size, item, 2, compiled=compiled, file=file, now=now)
    mapping.table.attach(0)
    mapping.table.offset = (time.time() if now is None else now) - time.monotonic()
    try:
        yield mapping
    finally:
        fcntl.flock(file.descriptor, fcntl.LOCK_UN)  # the mapping has the file, too
        os.close(file.descriptor)


def line(number: int) -> bytes:
    return b"get key-%d\r\n" % number


def reply(number: int, value: bytes) -> bytes:
    return wire_form(b"key-%d" % number, 0, value)


def put(mapping: Mapping, number: int, value: bytes = b"x", expires: float = 0.0) -> int:
    return mapping.table.store(line(number), reply(number, value), expires, None, 0, b"")


# Another process has a different hash seed; it prints the items it finds.
LOOK = """
import sys, time
from tests.unit.memory.shared.test_restart_file import line, opened, put
from pathlib import Path
with opened(Path(sys.argv[1]), compiled=sys.argv[2] == "True") as mapping:
    mapping.verify()
    print(mapping.kept, [mapping.table.find(line(number)) for number in range(300)])
    print([put(mapping, number) for number in range(300)])
    mapping.close(time.time())
"""


@pytest.mark.parametrize("then", KINDS)
@pytest.mark.parametrize("compiled", KINDS)
def test_another_process_has_the_items(tmp_path: Path, *, compiled: bool, then: bool) -> None:
    path, chance = tmp_path / "items", random.Random(1)
    uniques = {}
    with opened(path, compiled=compiled) as mapping:
        assert mapping.kept is None
        model: dict[int, bytes] = {}
        for _ in range(3000):
            number = chance.randrange(300)
            if chance.random() < 0.2:
                mapping.table.delete(line(number), None)
                model.pop(number, None)
            else:
                model[number] = chance.randbytes(chance.randrange(100))
                uniques[number] = put(mapping, number, model[number])
        mapping.close(time.time())
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(path), str(then)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    expected = [reply(one, model[one]) if one in model else None for one in range(300)]
    assert first == f"{len(model)} {expected}"
    later = json.loads(second)
    assert min(later) > max(uniques.values()), "uniques never repeat"
    assert len(set(later)) == 300
    with opened(path, compiled=compiled) as mapping:
        assert mapping.kept == 300, "a second time"


@pytest.mark.parametrize("compiled", KINDS)
def test_all_of_an_item_is_kept(tmp_path: Path, *, compiled: bool) -> None:
    path = tmp_path / "items"
    with opened(path, compiled=compiled) as mapping:
        now = time.time()
        put(mapping, 1, b"value", now + 1000)
        mapping.table.second = 5000
        mapping.table.find(line(1))
        extra = b"a key" + bytes(9)
        named = wire_form(b"", 7, b"v")
        mapping.table.store(b"get a key\r\n", named, 0.0, None, META | UNNAMED, extra)
        before = [mapping.table.get(line(1)), mapping.table.get(b"get a key\r\n")]
        mapping.close(now)
    with opened(path, compiled=compiled) as mapping:
        after = [mapping.table.get(line(1)), mapping.table.get(b"get a key\r\n")]
        assert mapping.used > 0
    for old, new in zip(before, after, strict=True):
        assert old is not None
        assert new is not None
        assert old[:3] + old[4:] == new[:3] + new[4:]
        assert old[3] & 31 == new[3] & 31
        assert (old[3] >> 5) - (new[3] >> 5) in (0, 1), "seconds count from the start"


@pytest.mark.parametrize("compiled", KINDS)
@pytest.mark.parametrize(
    ("wall", "restart", "left"),
    [
        pytest.param(1e9, 1e9 + 60, [100, 500], id="time passes"),
        pytest.param(1e9, 1e9 + 200, [500], id="one expires meanwhile"),
        pytest.param(1e9, 1e9 - 5000, [100, 500], id="the clock goes back"),
        pytest.param(1e9 + 5000, 1e9 + 5200, [500], id="it was set while the server ran"),
    ],
)
def test_expiry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, compiled: bool, wall: float, restart: float,
    left: list[int],
) -> None:  # fmt: skip
    path = tmp_path / "items"
    with opened(path, compiled=compiled, now=1e9) as mapping:
        for seconds in (100, 500):
            put(mapping, seconds, expires=1e9 + seconds)
        mapping.table.flush(1e9 + 450)
        with monkeypatch.context() as context:
            context.setattr(time, "time", lambda: wall)
            mapping.close(1e9)
    passed = max(0.0, restart - wall)
    with opened(path, compiled=compiled, now=restart) as mapping:
        assert mapping.kept == len(left)
        for one in left:
            found = mapping.table.get(line(one))
            assert found is not None
            assert found[1] == pytest.approx(restart + one - passed, abs=1)
        assert mapping.flush_at == pytest.approx(restart + 450 - passed, abs=1)


@pytest.mark.parametrize("compiled", KINDS)
def test_flushed_items_stay_absent(tmp_path: Path, *, compiled: bool) -> None:
    path = tmp_path / "items"
    with opened(path, compiled=compiled) as mapping:
        put(mapping, 1)
        mapping.table.flush(0.0)
        put(mapping, 2)
        mapping.close(time.time())
    with opened(path, compiled=compiled) as mapping:
        assert (mapping.kept, mapping.table.find(line(1))) == (1, None)
        mapping.verify()


@pytest.mark.parametrize("compiled", KINDS)
def test_a_full_table_is_kept(tmp_path: Path, *, compiled: bool) -> None:
    path = tmp_path / "items"
    with opened(path, compiled=compiled) as mapping:
        for number in range(20_000):
            put(mapping, number, b"v" * 300)
        items = len(mapping)
        mapping.close(time.time())
    with opened(path, compiled=compiled) as mapping:
        assert mapping.kept == items, "the hash of this process is the same"
        mapping.verify()
        for number in range(20_000):
            assert put(mapping, number, b"v" * 300) > 0
        mapping.verify()


@pytest.mark.parametrize("compiled", KINDS)
def test_restarts_cost_no_memory(tmp_path: Path, *, compiled: bool) -> None:
    """Each restart leaves a sealed segment with one item."""
    path = tmp_path / "items"
    with opened(path, compiled=compiled) as mapping:
        mapping.close(time.time())
    for number in range(2 * mapping.layout.segments):
        with opened(path, compiled=compiled) as mapping:
            assert mapping.kept == number
            assert put(mapping, number) > 0
            assert mapping.table.evictions == 0
            mapping.close(time.time())


def _spoil(at: int, value: bytes) -> Callable[[bytearray, Mapping], None]:
    def spoil(content: bytearray, mapping: Mapping) -> None:
        content[at : at + len(value)] = value

    return spoil


def _lengthen_a_record(content: bytearray, mapping: Mapping) -> None:
    at = content.index(b"VALUE key-1 ") - 32
    struct.pack_into("<I", content, at, 1 << 20)


def _change(offset: int, value: bytes) -> Callable[[bytearray, Mapping], None]:
    def change(content: bytearray, mapping: Mapping) -> None:
        at = content.index(b"VALUE key-1 ") - 32 + offset
        content[at : at + len(value)] = value

    return change


def _change_a_size(content: bytearray, mapping: Mapping) -> None:
    at = content.index(b"VALUE key-1 0 ") + len(b"VALUE key-1 0 ")
    content[at : at + 1] = b"7"


def _repeat_a_key(content: bytearray, mapping: Mapping) -> None:
    at = content.index(b"VALUE key-1 ")
    content[at : at + 11] = b"VALUE key-2"


def _move_a_slot(content: bytearray, mapping: Mapping) -> None:
    layout = mapping.layout
    for at in range(layout.slots_at, layout.slots_at + 8 * layout.slots * REGIONS, 8):
        word = struct.unpack_from("<Q", content, at)[0]
        if word > 1:
            struct.pack_into("<Q", content, at, word + 1)
            return


def _slots_point(where: int) -> Callable[[bytearray, Mapping], None]:
    def point(content: bytearray, mapping: Mapping) -> None:
        struct.pack_into("<Q", content, mapping.layout.slots_at, where)

    return point


@pytest.mark.parametrize("compiled", KINDS)
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        pytest.param(_spoil(KEPT_AT, bytes(8)), "the server that used it was killed", id="open"),
        pytest.param(_spoil(128, b"\5"), "its header is damaged", id="epoch"),
        pytest.param(_spoil(4096 + 64, b"\5"), "its header is damaged", id="region"),
        pytest.param(_spoil(64, b"\5"), "its header is damaged", id="places"),
        pytest.param(_spoil(PARKED_AT + 8, b"\5"), "its header is damaged", id="parked"),
        pytest.param(_change(8, b"\xff" * 8), "a cas unique was never assigned", id="unique"),
        pytest.param(_change(16, struct.pack("<d", math.inf)), "invalid expiry time", id="expiry"),
        pytest.param(_change(31, bytes([DEAD])), "a slot does not point to a record", id="dead"),
        pytest.param(_spoil(8, b"\1"), "it was created by another version", id="version"),
        pytest.param(_lengthen_a_record, "a record exceeds its segment", id="length"),
        pytest.param(_change_a_size, "a record is not an item", id="size"),
        pytest.param(_repeat_a_key, "two records have the same key", id="twice"),
        pytest.param(_move_a_slot, "a slot points into a record", id="slot"),
        pytest.param(_slots_point(2), "a slot does not point to a record", id="before"),
        pytest.param(_slots_point((1 << 50) - 1), "a slot does not point to a record", id="beyond"),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, *, compiled: bool, damage: Callable[[bytearray, Mapping], None], why: str
) -> None:
    path = tmp_path / "items"
    with opened(path, compiled=compiled) as mapping:
        for number in (1, 2):
            put(mapping, number, b"value")
        mapping.close(time.time())
    content = bytearray(path.read_bytes())
    damage(content, mapping)
    path.write_bytes(content)
    with opened(path, compiled=compiled) as mapping:
        assert (mapping.refused, mapping.kept) == (why, None)
        assert mapping.table.find(line(1)) is None
        assert put(mapping, 1) > 0
        mapping.verify()
        mapping.close(time.time())
    with opened(path, compiled=compiled) as mapping:
        assert (mapping.refused, mapping.kept) == ("", 1)


@pytest.mark.parametrize("compiled", KINDS)
def test_random_damage_is_refused_or_harmless(tmp_path: Path, *, compiled: bool) -> None:
    path, chance = tmp_path / "items", random.Random(5)
    with opened(path, compiled=compiled) as mapping:
        for number in range(400):
            put(mapping, number, b"value" * 20)
        mapping.close(time.time())
        layout = mapping.layout
    whole = path.read_bytes()
    for _ in range(30):
        content = bytearray(whole)
        first = chance.choice([0, layout.slots_at, layout.segments_at])
        for _ in range(chance.choice([1, 50])):
            content[first + chance.randrange(30_000)] = chance.randrange(256)
        if content[:8] != whole[:8]:
            continue
        path.write_bytes(content)
        with opened(path, compiled=compiled) as mapping:
            assert mapping.refused or mapping.kept is not None
            mapping.verify()
            for number in range(400):
                found = mapping.table.find(line(number))
                assert found is None or found.startswith(b"VALUE key-%d 0 100\r\n" % number)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "items"
    with opened(path, compiled=False) as mapping:
        put(mapping, 1)
        mapping.close(time.time())
    with opened(path, compiled=False, size=2 * SIZE) as mapping:
        assert mapping.refused == "it was created with -m 1"
        mapping.close(time.time())
    with opened(path, compiled=False, size=2 * SIZE, item=2 * ITEM) as mapping:
        assert mapping.refused == "it was created with another -I"
        mapping.close(time.time())
    os.truncate(path, SIZE)
    with opened(path, compiled=False, size=2 * SIZE, item=2 * ITEM) as mapping:
        assert mapping.refused == "it is truncated"


def test_a_file_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_file, "PATIENCE", 0.0)
    with pytest.raises(StartError, match=rf"^-e: {tmp_path}: Is a directory$"):
        MemoryFile(str(tmp_path))
    with pytest.raises(StartError, match=r"missing/items: No such file or directory$"):
        MemoryFile(str(tmp_path / "missing" / "items"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StartError, match="not a regular file"):
        MemoryFile(str(tmp_path / "pipe"))
    for text in (b"precious text", b"memlite", bytes(8) + b"precious text"):
        (tmp_path / "text").write_bytes(text)
        with pytest.raises(StartError, match="not a memory file; name another, or remove it"):
            MemoryFile(str(tmp_path / "text"))
        assert (tmp_path / "text").read_bytes() == text
    first = MemoryFile(str(tmp_path / "items"))
    assert (tmp_path / "items").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StartError, match="in use by another server"):
        MemoryFile(str(tmp_path / "items"))
    os.close(first.descriptor)


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "items"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    program = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({SIZE // 2}, {before[1]}))\n"
        "from memlite.memory.shared import Mapping, MemoryFile\n"
        "from memlite.core.errors import StartError\n"
        "try:\n"
        f"    Mapping({SIZE}, {ITEM}, 2, file=MemoryFile({str(path)!r}))\n"
        "except StartError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"-e: {path}: cannot map {SIZE} bytes: File too large\n"
    assert path.stat().st_size == 0
