"""Stores that require a password or TLS."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Issued, client_context
from tests.support.logins import write_users
from tests.support.program import run_forked as run
from tests.support.proxies import proxy
from tests.support.servers import RunningServer
from tests.support.waiting import wait_until

PASSWORD = "correct-horse-battery"
VARIABLE = {"MEMLITE_STORE_PASSWORD": PASSWORD}
Start = Callable[..., RunningServer]


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("certificates")).issue("server")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_users(tmp_path, f"ada:{PASSWORD}\n".encode())


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return path


def show(url: str) -> list[str]:
    """Return the lines of ``memlite cluster show``."""
    ended = run("cluster", "show", url)
    assert PASSWORD not in ended.stdout + ended.stderr
    return (ended.stdout or ended.stderr).splitlines()


def test_a_password_from_a_file_and_from_the_environment(
    start: Start, users: Path, password: Path
) -> None:
    store = start("-Y", str(users))
    place = f"ada@127.0.0.1:{store.port}/test"
    url = f"memcached://{place}?password_file={password}"
    node = start("--join", url, "--name", "one")
    assert wait_until(lambda: any("one" in line for line in show(url)))
    with proxy(f"memcached://{place}", environment=VARIABLE) as front, front.connect() as wire:
        assert wait_until(lambda: wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n")
        for server in (node, front):
            command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
            assert PASSWORD.encode() not in command + server.log.read_bytes()
    again = start("--join", f"memcached://{place}", "--name", "two", environment=VARIABLE)
    assert wait_until(lambda: any("two" in line for line in show(url)))
    assert PASSWORD.encode() not in again.log.read_bytes()


def test_without_the_password_nothing_starts(start: Start, users: Path, tmp_path: Path) -> None:
    store = start("-Y", str(users))
    address = f"127.0.0.1:{store.port}"
    wrong = tmp_path / "wrong"
    wrong.write_text("other")
    for place in (address, f"ada@{address}?password_file={wrong}"):
        ended = run("cluster", "show", f"memcached://{place}")
        assert ended.returncode == 71, ended.stderr
        assert f"cluster show: memcached://{address}: " in ended.stderr
        assert "unauthenticated" in ended.stderr or "authentication failure" in ended.stderr


def test_tls(start: Start, issued: Issued) -> None:
    store = start(*issued.flags, tls=client_context(issued.ca))
    place = f"127.0.0.1:{store.port}/test"
    url = f"memcacheds://{place}?ca_cert={issued.ca}"
    start("--join", url, "--name", "one")
    assert wait_until(lambda: any("one" in line for line in show(url)))
    assert any("one" in line for line in show(f"memcacheds://{place}?verify=0"))
    (line,) = show(f"memcacheds://{place}")
    assert f"memcacheds://127.0.0.1:{store.port}: " in line
    assert "certificate" in line.lower()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("memcached://ada:secret@h/x", "others can see a password in the URL; leave it out"),
        ("memcached://ada@h/x", "no password for ada in MEMLITE_STORE_PASSWORD; set it, or use"),
        ("memcached://ada@h/x?password_file=/none", "password_file /none: No such file"),
        ("memcached://h/x?password_file=/none", "password_file requires a user: user@host"),
        ("memcached://a%20b@h/x", "the user name must not contain spaces: 'a b'"),
        ("memcached://h/x?ca_cert=/none", "ca_cert requires memcacheds://"),
        ("memcacheds://h/x?ca_cert=/none", "ca_cert: /none: No such file or directory"),
        ("memcacheds://h/x?key=/none", "key requires cert"),
        ("memcacheds://h/x?verify=no", "verify must be 0 or 1, not 'no'"),
        ("memcacheds://h/x?verify=", "verify is empty"),
        ("memcached://h/x?user=ada", "unknown option user; the options are password_file"),
        ("memcached://h/x?user", "options must be ?name=value&name=value, not 'user'"),
    ],
)
def test_wrong_urls_are_refused_in_one_line(url: str, text: str) -> None:
    for command in (["-p", "0", "--join"], ["proxy", "-p", "0", "--cluster"]):
        ended = run(*command, url)
        assert ended.returncode == 64
        scheme = url.partition(":")[0]
        assert f"{command[-1]}: {scheme}: {text}" in ended.stderr.splitlines()[-1]
        assert "secret" not in ended.stderr
