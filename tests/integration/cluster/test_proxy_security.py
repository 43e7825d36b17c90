"""Passwords and TLS on both sides of a proxy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Issued, client_context
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

LOGIN = b"set auth 0 0 7\r\nada pwd\r\n"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users"
    path.write_text("ada:pwd\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("certificates")).issue("server")


@pytest.fixture(scope="module")
def guarded(users: Path, issued: Issued) -> Iterator[RunningServer]:
    """A node that requires a password and TLS."""
    tls = client_context(issued.ca)
    with running("memlite", "-Y", str(users), *issued.flags, tls=tls) as node:
        yield node


def stores(wire: Wire) -> bool:
    return (
        wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        and wire.ask(b"mg a v\r\n") == b"VA 1\r\n"
        and wire.line() == b"x\r\n"
    )


def error_of(front: RunningServer) -> str:
    with front.connect() as wire:
        stats = wire.stats()
        return next((text for name, text in stats.items() if name.endswith(":error")), "")


def test_a_node_with_a_password_and_tls(
    guarded: RunningServer, issued: Issued, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("pwd\n")
    arguments = [
        *("--node-user", "ada", "--node-password-file", str(password)),
        *("--node-tls", "--node-tls-ca-cert", str(issued.ca)),
    ]
    with proxy([guarded], *arguments) as front, front.connect() as wire:
        assert stores(wire)


@pytest.mark.parametrize(
    ("password", "tls", "says"),
    [
        ("wrong", True, "authentication as ada: "),
        ("pwd", False, "authentication as ada: connection closed"),
    ],
)
def test_a_node_that_refuses_the_proxy_is_down(
    guarded: RunningServer, issued: Issued, tmp_path: Path, password: str, tls: bool, says: str
) -> None:
    path = tmp_path / "password"
    path.write_text(password)
    arguments = ["--node-user", "ada", "--node-password-file", str(path)]
    if tls:
        arguments += ["--node-tls", "--node-tls-ca-cert", str(issued.ca)]
    with proxy([guarded], *arguments) as front, front.connect() as wire:
        assert wait_until(lambda: says in error_of(front)), error_of(front)
        assert wire.ask(b"get a\r\n").startswith(b"SERVER_ERROR node ")


def test_a_certificate_of_another_authority_is_refused(
    guarded: RunningServer, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    arguments = ["--node-tls", "--node-tls-ca-cert", str(stranger.path)]
    with proxy([guarded], *arguments) as front:
        assert wait_until(lambda: "certificate" in error_of(front).lower()), error_of(front)


def test_clients_with_a_password_and_tls(users: Path, issued: Issued) -> None:
    tls = client_context(issued.ca)
    with (
        running("memlite") as node,
        proxy([node], "-Y", str(users), *issued.flags, tls=tls) as front,
    ):
        with front.connect() as wire:
            assert wire.ask(b"get a\r\n") == b"CLIENT_ERROR unauthenticated\r\n"
            assert wire.ask(b"set auth 0 0 7\r\nada pwx\r\n").startswith(b"CLIENT_ERROR")
        with front.connect() as wire:
            assert wire.ask(LOGIN) == b"STORED\r\n"
            assert stores(wire)
        with node.connect() as wire:
            assert wire.ask(b"mg a\r\n") == b"HD\r\n"
