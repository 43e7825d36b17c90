"""Reading paths that are given as files: files, pipes, devices and folders."""

import os
import socket
import threading
from pathlib import Path

import pytest

from memlite.core.files import check_regular, read_whole

LIMIT = 100_000


def pipe(folder: Path) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    return path


def test_a_file_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * LIMIT)
    file.chmod(0o640)
    found = read_whole(file, LIMIT)
    assert (found.content, found.mode & 0o777) == (b"x" * LIMIT, 0o640)
    with pytest.raises(OSError, match="larger than 99999 bytes"):
        read_whole(str(file), LIMIT - 1)


def test_unreadable_paths(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "absent", LIMIT)
    with pytest.raises(IsADirectoryError):
        read_whole(tmp_path, LIMIT)


@pytest.mark.parametrize("pieces", [[b""], [b"one"], [b"one", b"two", b"x" * 90_000]])
def test_a_pipe_with_a_writer(tmp_path: Path, pieces: list[bytes]) -> None:
    path = pipe(tmp_path)

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for piece in pieces:
                file.write(piece)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_whole(path, LIMIT, patience=60.0).content == b"".join(pieces)
    writer.join()


@pytest.mark.parametrize("patience", [0.0, 0.05])
def test_a_pipe_that_does_not_end(tmp_path: Path, patience: float) -> None:
    path = pipe(tmp_path)
    text = f"not a regular file, and no end of input within {patience:g} s"
    with pytest.raises(TimeoutError) as no_writer:
        read_whole(path, LIMIT, patience)
    assert no_writer.value.strerror == text
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.write(descriptor, b"part")
        with pytest.raises(TimeoutError, match=text):
            read_whole(path, LIMIT, patience)
    finally:
        os.close(descriptor)


def test_devices() -> None:
    assert read_whole("/dev/null", LIMIT).content == b""
    with pytest.raises(OSError, match="larger than"):
        read_whole("/dev/zero", LIMIT)


def test_pipes_devices_and_sockets_are_not_regular(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for harmless in (file, tmp_path, tmp_path / "absent"):
        check_regular(harmless)
    (tmp_path / "link").symlink_to(pipe(tmp_path))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "link", "/dev/null", str(tmp_path / "socket")):
            with pytest.raises(OSError, match="not a regular file, but a pipe, device or socket"):
                check_regular(path)
