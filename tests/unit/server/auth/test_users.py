"""The users file: valid contents, and the messages for invalid ones."""

import logging
from pathlib import Path

import pytest

from memlite.core.errors import StartError
from memlite.server.auth.users import MAX_FILE_SIZE, Users


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.touch(0o600)
    return path


@pytest.mark.parametrize(
    "text",
    [
        b"foo:bar\nbaaaz:quux\n",
        b"foo:bar\nbaaaz:quux",
        b"foo:bar\r\nbaaaz:quux\r\n",
        b"\nfoo:bar\n\n\nbaaaz:quux\n\n",
        b"foo:bar\rwhat memcached does not read\nbaaaz:quux\n",
    ],
)
def test_users(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    users = Users(str(file))
    assert len(users) == 2
    assert users.check(b"foo", b"bar")
    assert users.check(b"baaaz", b"quux")
    for user, password in [
        (b"foo", b"quux"),
        (b"foo", b"ba"),
        (b"foo", b"barr"),
        (b"foo", b""),
        (b"fo", b"obar"),
        (b"", b""),
        (b"nobody", b"bar"),
        (b"foo:bar", b""),
    ]:
        assert not users.check(user, password)


def test_a_password_may_contain_any_other_byte(file: Path) -> None:
    password = b"a:b c\t" + bytes(range(0x80, 0x100)) + b"x" * 1000
    file.write_bytes(b"user:" + password + b"\n")
    assert Users(str(file)).check(b"user", password)


def test_an_old_and_a_new_password(file: Path) -> None:
    file.write_bytes(b"foo:old\nfoo:new\n")
    users = Users(str(file))
    assert users.check(b"foo", b"old")
    assert users.check(b"foo", b"new")


WRONG = [
    (b"", "contains no users"),
    (b"\n\n", "contains no users"),
    (b"foo:bar\npassword\n", "line 2 is not user:password"),
    (b":bar\n", "line 1 is not"),
    (b"foo:\n", "line 1 is not"),
    (b"foo:b\0r\n", "line 1 is not"),
    (b"foo:" + b"x" * MAX_FILE_SIZE, "larger than"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_an_invalid_file(file: Path, text: bytes, said: str) -> None:
    file.write_bytes(text)
    with pytest.raises(StartError, match=said) as caught:
        Users(str(file))
    assert str(caught.value).startswith(f"-Y: {file}: ")
    assert "password" not in str(caught.value).replace("user:password", "")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"-Y: .*: No such file or directory"):
        Users(str(tmp_path / "none"))
    with pytest.raises(StartError, match=r"-Y: .*: Is a directory"):
        Users(str(tmp_path))


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_reloading_an_invalid_file_changes_nothing(file: Path, text: bytes, said: str) -> None:
    file.write_bytes(b"foo:bar\n")
    users = Users(str(file))
    file.write_bytes(text)
    with pytest.raises(StartError, match=said):
        users.load()
    assert users.check(b"foo", b"bar")
    file.write_bytes(b"foo:new\n")
    users.load()
    assert users.check(b"foo", b"new")
    assert not users.check(b"foo", b"bar")


def test_the_file_can_be_reloaded_from_another_directory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(b"foo:bar\n")
    monkeypatch.chdir(file.parent)
    users = Users(file.name)
    monkeypatch.chdir("/")
    users.load()
    assert users.check(b"foo", b"bar")


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_warning_if_the_file_is_world_readable(
    file: Path, mode: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(b"foo:bar\n")
    file.chmod(mode)
    with caplog.at_level(logging.WARNING, "memlite"):
        Users(str(file))
    assert ("readable by every user on this machine (mode 644)" in caplog.text) == warns


def test_passwords_are_not_kept(file: Path) -> None:
    file.write_bytes(b"foo:hunter2\n")
    users = Users(str(file))
    assert "hunter2" not in repr(vars(users))
