"""Setup of the server process: the parts that can be tested without starting one."""

import os
from pathlib import Path

import pytest

from memlite.core.errors import StartError
from memlite.server.process import pid_file


def test_pid_file_exists_while_the_server_runs(tmp_path):
    path = tmp_path / "pid"
    with pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["1\n", "", "nonsense", b"\xff"])
def test_pid_file_of_another_process_is_not_removed(content, tmp_path):
    path = tmp_path / "pid"
    content = content if isinstance(content, bytes) else content.encode()
    with pid_file(str(path)):
        path.write_bytes(content)
    assert path.read_bytes() == content


def test_pid_file_that_is_gone_already(tmp_path, caplog):
    path = tmp_path / "pid"
    with pid_file(str(path)):
        path.unlink()
    assert caplog.text == ""


def test_pid_file_is_removed_from_another_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pid_file("pid"):
        monkeypatch.chdir("/")
    assert list(tmp_path.iterdir()) == []


def test_pid_file_that_cannot_be_removed(tmp_path, caplog):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pid_file(str(folder / "pid")):
        (folder / "pid").unlink()
        (folder / "pid").mkdir()
    assert "-P: could not remove" in caplog.text


def test_pid_file_that_cannot_be_written(tmp_path):
    with (
        pytest.raises(StartError, match="-P: could not write"),
        pid_file(str(tmp_path / "n" / "p")),
    ):
        raise AssertionError


def test_no_pid_file():
    files = set(Path().iterdir())
    with pid_file(None):
        assert set(Path().iterdir()) == files
