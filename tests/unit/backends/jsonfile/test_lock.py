import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memlite.backends.jsonfile import lock as module
from memlite.backends.jsonfile.lock import Lock
from memlite.core.errors import StartError


def test_only_one_server_holds_the_lock(tmp_path):
    path = tmp_path / "cache.json.lock"
    lock = Lock(path)
    lock.sign()
    try:
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(StartError) as raised:
            Lock(path)
        assert str(raised.value) == (
            f"--backend: {tmp_path}/cache.json is in use by another server (process {os.getpid()})"
        )
    finally:
        lock.release()
    Lock(path).release()


def test_refused_locks_leave_no_descriptors(tmp_path):
    path = tmp_path / "cache.json.lock"
    lock = Lock(path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(StartError):
            Lock(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    lock.release()


def test_a_child_process_does_not_inherit_the_lock(tmp_path):
    path = tmp_path / "cache.json.lock"
    lock = Lock(path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        lock.release()
        Lock(path).release()
        assert child.stdin is not None
        child.stdin.close()


def test_the_error_names_a_missing_folder(tmp_path):
    with pytest.raises(StartError, match=rf"directory {tmp_path}/none does not exist"):
        Lock(tmp_path / "none" / "cache.json.lock")


def test_the_error_says_why_the_file_cannot_be_opened(tmp_path):
    (tmp_path / "cache.json.lock").mkdir()
    with pytest.raises(StartError, match=r"cache\.json\.lock: Is a directory"):
        Lock(tmp_path / "cache.json.lock")


def test_a_full_disk_does_not_prevent_a_start(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    lock = Lock(tmp_path / "cache.json.lock")
    lock.sign()
    lock.release()


def test_a_file_system_without_locks_is_not_taken_for_another_server(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(module, "_try_lock", refuse)
    with pytest.raises(StartError, match="cannot be locked: No locks available"):
        Lock(tmp_path / "cache.json.lock")
