"""Access control of the HTTP port: tokens and host names."""

import base64
import os
import socket
from pathlib import Path

import pytest

from memlite.core.errors import StartError
from memlite.server.http.access import Access, Token, host_of

TOKEN = "0123456789abcdef"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\nanything else\n")
    path.chmod(0o600)
    return path


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "header",
    [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic(f"anyone:{TOKEN}"), basic(f":{TOKEN}")],
)
def test_the_token_is_accepted(file: Path, header: str) -> None:
    assert Token(str(file)).accepts(header)


@pytest.mark.parametrize(
    "header",
    [
        "", TOKEN, "Bearer", f"Bearer {TOKEN}0", f"Bearer {TOKEN[:-1]}", f"Digest {TOKEN}",
        basic(TOKEN), basic(f"{TOKEN}:"), "Basic !", "Basic é", "Bearer é\udcff",
        "Basic AAAAA",
    ],
)  # fmt: skip
def test_other_credentials_are_rejected(file: Path, header: str) -> None:
    assert not Token(str(file)).accepts(header)


def test_a_new_token_is_loaded_and_a_bad_one_is_not(file: Path) -> None:
    token = Token(str(file))
    file.write_text("f" * 16)
    token.load()
    assert token.accepts("Bearer " + "f" * 16)
    assert not token.accepts(f"Bearer {TOKEN}")
    file.write_text("short\n")
    with pytest.raises(StartError):
        token.load()
    assert token.accepts("Bearer " + "f" * 16)


@pytest.mark.parametrize("text", ["", "short", "\n" + TOKEN, "é" * 20, "a b" * 10])
def test_bad_tokens(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(StartError, match="must be a token of at least 16 ASCII characters"):
        Token(str(path))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"--http-token-file: .*No such file"):
        Token(str(tmp_path / "none"))


def test_a_world_readable_file_is_reported(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.chmod(0o644)
    Token(str(file))
    assert "readable by every user" in caplog.text


def test_relative_paths_stay_valid(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    token = Token(file.name)
    os.chdir("/")
    token.load()


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("127.0.0.1:9150", True), ("10.1.2.3", True), ("[::1]:9150", True), ("[::1]", True),
        ("localhost:9150", True), ("LOCALHOST.", True), ("cache:80", True), ("Cache.Example", True),
        (socket.gethostname(), True), ("evil.example", False), ("cache.example.evil", False),
        ("", False), (":80", False), ("[::1", False), ("[::1]x", False), ("cache:x", False),
        ("127.0.0.1.evil.example", False), ("localhost:80@evil.example", False),
    ],
)  # fmt: skip
def test_names_of_this_server(header: str, known: bool) -> None:
    assert Access(None, ["cache", "cache.example"]).knows_host(header) == known


def test_hosts_without_ports() -> None:
    assert host_of("a.example:80") == host_of("a.example") == "a.example"
    assert host_of("[fe80::1]:80") == "fe80::1"


def test_without_a_token_none_is_accepted() -> None:
    access = Access(None, [])
    assert not access.needs_token
    assert not access.has_token(f"Bearer {TOKEN}")
