"""Which file system a path is on."""

from pathlib import Path

import psutil
import pytest

from memlite.loadtest.mounts import file_system
from memlite.loadtest.remote import counters

MOUNTS = [
    ("/", "overlay"),
    ("/memlite", "xfs"),
    ("/memlite/data", "ext4"),
    ("/memlite/hidden", "ext4"),
    ("/memlite/hidden", "tmpfs"),
]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/memlite/data", "ext4"),
        ("/memlite/data/items", "ext4"),
        ("/memlite/data2", "xfs"),
        ("/memlite/hidden/items", "tmpfs"),
        ("/memlite2/data", "overlay"),
    ],
)
def test_a_path_is_on_the_file_system_of_its_closest_mount_point(path: str, expected: str) -> None:
    assert file_system(Path(path), MOUNTS) == expected
    assert file_system(Path(path), []) == "unknown"


def test_names_of_mount_points_may_have_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").mkdir()
    monkeypatch.setattr(counters, "_PROC", tmp_path)
    assert counters.mounts() == []
    (tmp_path / "self" / "mounts").write_bytes(
        b"/dev/a / ext4 rw 0 0\n"
        b"/dev/b /my\\040disk\\134x xfs rw 0 0\n"
        b"/dev/c /\xff\xc3\xa9 btrfs rw 0 0\n"
    )
    assert counters.mounts() == [
        ("/", "ext4"),
        ("/my disk\\x", "xfs"),
        ("/\udcffé", "btrfs"),
    ]


@pytest.mark.skipif(not Path("/proc/self/mounts").exists(), reason="it reads /proc")
def test_the_root_is_mounted_as_psutil_says() -> None:
    known = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    assert dict(counters.mounts())["/"] == known["/"]
