"""Authentication in text and with SASL, on each event loop and backend, and on memcached."""

import contextlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path

import bmemcached
import pytest

from memlite.core.version import SERVER_VERSION
from memlite.protocol import replies
from tests.support.bench import bench
from tests.support.logins import FAILURE, LOGIN, STORED, UNAUTHENTICATED, USERS, write_users
from tests.support.program import run_forked
from tests.support.servers import (
    PEER_VARIABLE,
    RunningServer,
    Wire,
    memcached_path,
    memcached_version,
    needs_memcached,
    running,
)
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]

KINDS = ["memlite", "memlite-asyncio", "memlite-near", "memlite-file"]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a users file that no test changes."""
    return write_users(tmp_path_factory.mktemp("auth"), USERS)


@pytest.fixture(scope="module", params=[*KINDS, pytest.param("memcached", marks=needs_memcached)])
def asking(request: pytest.FixtureRequest, users: Path) -> Iterator[RunningServer]:
    """A server with -Y: memlite in its variants, and memcached."""
    with running(request.param, "-Y", str(users)) as server:
        yield server


# In text

OTHERWISE_BEFORE = [
    b"set x 0 0 16385\r\n",
    b"set x 0 0 2147483646\r\n",
    b"set x 0 0 8\r\nfoo bar \r\n",
    b"set x 0 0 4\r\nfoo \r\n",
    b"set x 0 0 4\r\n bar\r\n",
    b"quit\r\n",
    b"x\r\n\r\n",
    b"setx x 0 0 07\r\nfoo bar\r\n",
]


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (b"get x\r\n", UNAUTHENTICATED),
        (b"version\r\n", UNAUTHENTICATED),
        (b"stats\r\n", UNAUTHENTICATED),
        (b"flush_all\r\n", UNAUTHENTICATED),
        (b"mg x v\r\n", UNAUTHENTICATED),
        (b"add x 0 0 7\r\n", UNAUTHENTICATED),
        (b"set x 0 0\r\n", UNAUTHENTICATED),
        (b"set x 0 0 -7\r\n", UNAUTHENTICATED),
        (b"set x 0 0 7x\r\n", UNAUTHENTICATED),
        (b"set x 0 0 2\r\nhi\r\n", b"CLIENT_ERROR bad authentication token format\r\n"),
        (b"set x 0 0 0\r\n\r\n", b"CLIENT_ERROR bad authentication token format\r\n"),
        (b"set x 0 0 7\r\nfoo barXX", b"CLIENT_ERROR bad command line termination\r\n"),
        (b"set x 0 0 16385\r\n", b"CLIENT_ERROR auth token too long\r\n"),
        (b"set x 0 0 2147483646\r\n", b"CLIENT_ERROR auth token too long\r\n"),
        (b"set x 0 0 7\r\nfoo bab\r\n", FAILURE),
        (b"set x 0 0 7\r\nfop bar\r\n", FAILURE),
        (b"set x 0 0 8\r\nfoo bar \r\n", FAILURE),
        (b"set x 0 0 4\r\nfoo \r\n", FAILURE),
        (b"set x 0 0 4\r\n bar\r\n", FAILURE),
        (b"quit\r\n", b""),
        (b"x\r\n\r\n", b""),
        (b"x" * 2049, b""),
        (LOGIN, STORED),
        (b"set  any  1 2 10  noreply\r\nbaaaz quux\r\n", STORED),
        (b"setx x 0 0 07\r\nfoo bar\r\n", STORED),
    ],
)
def test_the_first_request(asking: RunningServer, request_: bytes, reply: bytes) -> None:
    old = asking.kind == "memcached" and memcached_version() < (1, 6, 45)
    if old and request_ in OTHERWISE_BEFORE:
        pytest.skip("memcached replied differently before 1.6.45, or crashed")
    with asking.connect() as wire:
        assert wire.ask(request_) == reply
        if reply == STORED:
            assert wire.ask(b"get x\r\n") == b"END\r\n"
        elif reply:
            assert wire.ask(b"get x\r\n") == UNAUTHENTICATED
            assert wire.ask(LOGIN) == STORED


def test_byte_by_byte_and_followed_by_commands(asking: RunningServer) -> None:
    with asking.connect() as wire:
        for byte in LOGIN:
            wire.send(bytes([byte]))
        assert wire.line() == STORED
    with asking.connect() as wire:
        wire.send(LOGIN + b"set k 0 0 1\r\n1\r\nget k\r\nget k\r\n")
        assert wire.exactly(8 + 8 + 2 * 21) == STORED * 2 + b"VALUE k 0 1\r\n1\r\nEND\r\n" * 2


def test_after_authentication_a_set_is_a_set(asking: RunningServer) -> None:
    with asking.connect() as wire:
        assert wire.ask(LOGIN) == STORED
        assert wire.ask(b"get x\r\n") == b"END\r\n"
        # Now a set is an ordinary set.
        assert wire.ask(LOGIN) == STORED
        wire.send(b"get x\r\nget x\r\n")
        assert wire.exactly(2 * 27) == b"VALUE x 0 7\r\nfoo bar\r\nEND\r\n" * 2
        assert wire.ask(b"delete x\r\n") == b"DELETED\r\n"


def test_attempts_are_counted(asking: RunningServer) -> None:
    with asking.connect() as wire:
        assert wire.ask(LOGIN) == STORED
        before = wire.stats()
        with asking.connect() as other:
            assert other.ask(b"set x 0 0 7\r\nfoo bab\r\n") == FAILURE
            assert other.ask(b"get x\r\n") == UNAUTHENTICATED
            assert other.ask(LOGIN) == STORED
        after = wire.stats()
        settings = wire.stats("settings")
    change = [int(after[name]) - int(before[name]) for name in ("auth_cmds", "auth_errors")]
    assert change == [2, 1]
    assert settings["auth_enabled_ascii"].endswith("users")
    assert (settings["auth_enabled_sasl"], settings["binding_protocol"]) == ("no", "ascii")


@pytest.mark.parametrize("kind", KINDS)
def test_each_pipelined_request_is_answered(users: Path, kind: str) -> None:
    # memcached answers only the last of them.
    with running(kind, "-Y", str(users)) as server, server.connect() as wire:
        wire.send(b"get x\r\n" * 100 + b"set x 0 0 1\r\nx\r\n" + LOGIN + b"version\r\n")
        expected = UNAUTHENTICATED * 100 + b"CLIENT_ERROR bad authentication token format\r\n"
        expected += STORED + b"VERSION %b\r\n" % SERVER_VERSION.encode()
        assert wire.exactly(len(expected)) == expected


def test_several_workers_count_failures_together(users: Path) -> None:
    # 25 to each worker; a worker that counted only its own failures would check them all.
    wrong, count = b"set x 0 0 9\r\nfoo wrong\r\n", 75
    with running("memlite", "-t", "3", "-Y", str(users)) as server, contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect(60)) for _ in range(count)]
        assert wires[0].ask(wrong) == FAILURE
        for wire in wires[1:]:
            wire.send(wrong)
        # Workers handle them in any order. Refused clients are told so at once.
        waiting = {wire.sock: wire for wire in wires[1:]}
        lines = set()
        while waiting and replies.TOO_MANY_FAILURES not in lines:
            lines |= {waiting.pop(sock).line() for sock in wait(waiting, 60)}
        assert lines <= {FAILURE, replies.TOO_MANY_FAILURES}
        assert replies.TOO_MANY_FAILURES in lines


def test_on_a_unix_socket(users: Path) -> None:
    with running("memlite", "-Y", str(users), unix=True) as server, server.connect() as wire:
        assert wire.ask(b"get x\r\n") == UNAUTHENTICATED
        assert wire.ask(b"set x 0 0 3\r\na b\r\n") == FAILURE
        assert wire.ask(LOGIN) == STORED


@pytest.mark.parametrize("data", [b"\x80", b"\x80\x0b" + bytes(22)])
def test_a_binary_client_gets_an_immediate_reply(users: Path, data: bytes) -> None:
    with running("memlite", "-Y", str(users)) as server:
        assert server.ask(data) == b""


# The users file


def test_the_file_is_read_again_on_sighup(start: Start, tmp_path: Path) -> None:
    path = write_users(tmp_path, USERS)
    server = start("-Y", str(path), "-v")
    with server.connect() as before:
        assert before.ask(LOGIN) == STORED
        path.write_bytes(b"foo:new\n")
        server.process.send_signal(1)
        assert wait_until(lambda: "SIGHUP: users reloaded" in server.log.read_text())
        with server.connect() as wire:
            assert wire.ask(LOGIN) == FAILURE
            assert wire.ask(b"set x 0 0 7\r\nfoo new\r\n") == STORED
        assert before.ask(b"get x\r\n") == b"END\r\n"


def test_a_broken_new_file_changes_nothing(start: Start, tmp_path: Path) -> None:
    path = write_users(tmp_path, USERS)
    server = start("-Y", str(path))
    path.write_bytes(b"foo:bar\nhunter2\n")
    server.process.send_signal(1)
    expected = f"SIGHUP: users not reloaded: -Y: {path}: line 2 is not user:password"
    assert wait_until(lambda: expected in server.log.read_text())
    assert "hunter2" not in server.log.read_text()
    path.unlink()
    server.process.send_signal(1)
    assert wait_until(lambda: "No such file" in server.log.read_text())
    with server.connect() as wire:
        assert wire.ask(LOGIN) == STORED


def start_fails(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Return the exit code and the error line of a server that cannot start."""
    done = run_forked("-p", "0", *arguments, **(environment or {}))
    assert done.stderr.count("\n") == 1
    return done.returncode, done.stderr.removeprefix("memlite: ").strip()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory"),
        (b"", "contains no users"),
        (b"foo\n", "line 1 is not user:password"),
        (b"a:" + b"b" * 65536, "larger than 65536 bytes"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: bytes | None, said: str) -> None:
    path = tmp_path / "users"
    if text is not None:
        write_users(tmp_path, text)
    assert start_fails("-Y", str(path)) == (71, f"-Y: {path}: {said}")


def test_options_that_exclude_each_other(users: Path) -> None:
    for arguments, said in [
        (["-Y", str(users), "-B", "binary"], "-Y: password files are for the text protocol"),
        (["-Y", str(users), "-B", "auto"], "-Y: password files are for the text protocol"),
        (["-Y", str(users), "-U", "11211"], "-Y: clients cannot authenticate over UDP"),
        (["-S", "-Y", str(users), "-U", "11211"], "-S: clients cannot authenticate over UDP"),
        (["-S", "-B", "auto"], "-S: SASL is for the binary protocol, not for -B auto"),
        (["-S", "-B", "ascii"], "-S: SASL is for the binary protocol, not for -B ascii"),
        (["-S", "-B", "binary", "-B", "ascii"], "-S: SASL is for the binary protocol"),
    ]:
        code, text = start_fails(*arguments)
        assert (code, text[: len(said)]) == (64, said)
    code, text = start_fails("-S")
    assert (code, text) == (71, "-S: name a users file with -Y (or MEMCACHED_SASL_PWDB)")
    code, text = start_fails("-S", environment={"SASL_CONF_PATH": "/etc/sasl2"})
    assert code == 71
    assert text.endswith("memlite cannot read the sasldb that SASL_CONF_PATH points to")


def test_warnings_at_start_up(tmp_path: Path) -> None:
    path = write_users(tmp_path, USERS)
    with running("memlite", "-Y", str(path)) as server:
        assert server.log.read_text() == ""
    with running("memlite", "-l", "0.0.0.0", "-Y", str(path)) as server:
        text = server.log.read_text()
    assert text.startswith("memlite: warning: listening on 0.0.0.0:")
    assert text.endswith(" without TLS (-Z): passwords can be intercepted\n")
    path.chmod(0o644)
    with running("memlite", "-S", "-Y", str(path)) as server:
        assert "readable by every user on this machine (mode 644)" in server.log.read_text()


def test_passwords_are_not_logged(users: Path) -> None:
    with running("memlite", "-vv", "-S", "-B", "auto", "-Y", str(users)) as server:
        with server.connect() as wire:
            assert wire.ask(b"set x 0 0 11\r\nfoo hunter2\r\n") == FAILURE
            assert wire.ask(LOGIN + b"get k\r\n") == STORED
            assert wire.line() == b"END\r\n"
        with server.connect() as wire:
            assert ask(wire, AUTH, b"PLAIN", b"\0foo\0hunter2")[0] == AUTH_ERROR
            assert ask(wire, AUTH, b"PLAIN", b"\0foo\0bar")[0] == 0
        assert server.stop() == 0  # otherwise the second failure would be reported later
        log = server.log.read_text()
    assert "get k" in log
    assert log.count("authentication failed, from tcp:127.0.0.1:") == 2
    for secret in ("hunter2", "bar", "quux"):
        assert secret not in log


# SASL

GET, NOOP, VERSION, STAT, LIST, AUTH, STEP = 0x00, 0x0A, 0x0B, 0x10, 0x20, 0x21, 0x22
AUTH_ERROR, CONTINUE = 0x20, 0x21
HEADER = struct.Struct(">BBHBBHIIQ")


def packet(opcode: int, key: bytes = b"", value: bytes = b"") -> bytes:
    return HEADER.pack(0x80, opcode, len(key), 0, 0, 0, len(key) + len(value), 7, 0) + key + value


def answer(wire: Wire) -> tuple[int, bytes]:
    """Return the status and the body of the next reply."""
    *_, status, size, opaque, _ = HEADER.unpack(wire.exactly(HEADER.size))
    assert opaque == 7
    return status, wire.exactly(size)


def ask(wire: Wire, opcode: int, key: bytes = b"", value: bytes = b"") -> tuple[int, bytes]:
    wire.send(packet(opcode, key, value))
    return answer(wire)


def sasl_stats(server: RunningServer) -> dict[bytes, bytes]:
    stats = {}
    with server.connect() as wire:
        assert ask(wire, AUTH, b"PLAIN", b"\0foo\0bar")[0] == 0
        wire.send(packet(STAT))
        while True:
            _, _, key_size, *_, size, _, _ = HEADER.unpack(wire.exactly(HEADER.size))
            if not size:
                return stats
            body = wire.exactly(size)
            stats[body[:key_size]] = body[key_size:]


@pytest.fixture(scope="module", params=KINDS)
def sasl(request: pytest.FixtureRequest, users: Path) -> Iterator[RunningServer]:
    with running(request.param, "-S", "-Y", str(users)) as server:
        yield server


# The replies of memcached 1.6.45, built with --enable-sasl-pwdb: what is sent, and the status of
# each reply; a final -1 if it closes the connection.
SASL_CASES = {
    "mechanisms": ([(LIST,)], [0]),
    "version": ([(VERSION,)], [0]),
    "anything else": ([(GET, b"x")], [AUTH_ERROR, -1]),
    "nothing": ([(NOOP,)], [AUTH_ERROR, -1]),
    "quit": ([(0x07,)], [AUTH_ERROR, -1]),
    "unknown": ([(0x77,)], [AUTH_ERROR, -1]),
    "good": ([(AUTH, b"PLAIN", b"\0foo\0bar"), (NOOP,)], [0, 0]),
    "small letters": ([(AUTH, b"plain", b"\0foo\0bar"), (NOOP,)], [0, 0]),
    "for itself": ([(AUTH, b"PLAIN", b"foo\0foo\0bar"), (NOOP,)], [0, 0]),
    "for another": ([(AUTH, b"PLAIN", b"baaaz\0foo\0bar"), (NOOP,)], [AUTH_ERROR] * 2 + [-1]),
    "bad": ([(AUTH, b"PLAIN", b"\0foo\0baz"), (NOOP,)], [AUTH_ERROR] * 2 + [-1]),
    "bad, then good": (
        [(AUTH, b"PLAIN", b"\0foo\0baz"), (AUTH, b"PLAIN", b"\0foo\0bar"), (NOOP,)],
        [AUTH_ERROR, 0, 0],
    ),
    "in two steps": (
        [(AUTH, b"PLAIN"), (STEP, b"PLAIN", b"\0foo\0bar"), (NOOP,)],
        [CONTINUE, 0, 0],
    ),
    "the second step first": ([(STEP, b"PLAIN", b"\0foo\0bar")], [AUTH_ERROR]),
    "a mechanism it has not": ([(AUTH, b"CRAM-MD5", b"\0foo\0bar"), (LIST,)], [AUTH_ERROR, 0]),
    "none at all": ([(AUTH, b"X" * 40, b"\0foo\0bar"), (LIST,)], [0x04, 0]),
    "no mechanism": ([(AUTH, b"", b"\0foo\0bar")], [0x04, -1]),
    "garbage": ([(AUTH, b"PLAIN", b"foo bar"), (LIST,)], [AUTH_ERROR, 0]),
    "again": ([(AUTH, b"PLAIN", b"\0foo\0bar")] * 2, [0, AUTH_ERROR]),
}


@pytest.mark.parametrize("case", SASL_CASES)
def test_sasl(sasl: RunningServer, case: str) -> None:
    packets, statuses = SASL_CASES[case]
    with sasl.connect() as wire:
        for arguments, status in zip(packets, statuses, strict=False):
            assert ask(wire, *arguments)[0] == status
        if statuses[-1] == -1:
            assert wire.rest() == b""


def test_sasl_texts(sasl: RunningServer) -> None:
    with sasl.connect() as wire:
        assert ask(wire, LIST) == (0, b"PLAIN")
        assert ask(wire, VERSION) == (0, SERVER_VERSION.encode())
        assert ask(wire, AUTH, b"PLAIN", b"\0foo\0baz") == (AUTH_ERROR, b"Auth failure.")
        assert ask(wire, AUTH, b"PLAIN", b"\0foo\0bar") == (0, b"Authenticated")


def test_sasl_byte_by_byte_and_followed_by_commands(sasl: RunningServer) -> None:
    data = packet(AUTH, b"PLAIN", b"\0foo\0bar")
    with sasl.connect() as wire:
        for byte in data:
            wire.send(bytes([byte]))
        assert answer(wire) == (0, b"Authenticated")
    with sasl.connect() as wire:
        wire.send(data + packet(NOOP) + packet(VERSION))
        assert [answer(wire)[0] for _ in range(3)] == [0, 0, 0]


def test_sasl_attempts_are_counted(sasl: RunningServer) -> None:
    before = sasl_stats(sasl)
    with sasl.connect() as wire:
        ask(wire, AUTH, b"PLAIN", b"\0foo\0baz")
        ask(wire, STEP, b"PLAIN", b"\0foo\0bar")
    after = sasl_stats(sasl)
    change = [int(after[name]) - int(before[name]) for name in (b"auth_cmds", b"auth_errors")]
    assert change == [3, 2]


@pytest.mark.parametrize("data", [LOGIN, b"get x\r\n", b"version\r\n"])
def test_text_is_refused_with_sasl(sasl: RunningServer, data: bytes) -> None:
    assert sasl.ask(data) == b""


def test_users_from_memcacheds_variable(start: Start, users: Path) -> None:
    server = start("-S", environment={"MEMCACHED_SASL_PWDB": str(users)})
    with server.connect() as wire:
        assert ask(wire, AUTH, b"PLAIN", b"\0baaaz\0quux")[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_each_protocol_has_its_own_authentication(users: Path, kind: str) -> None:
    with running(kind, "-S", "-B", "auto", "-Y", str(users)) as server:
        with server.connect() as wire:
            assert wire.ask(b"get x\r\n") == UNAUTHENTICATED
            assert wire.ask(LOGIN + b"set k 0 0 1\r\n1\r\n") == STORED
            assert wire.line() == STORED
        with server.connect() as wire:
            assert ask(wire, LIST) == (0, b"PLAIN")
            assert ask(wire, AUTH, b"PLAIN", b"\0foo\0bar")[0] == 0
            assert ask(wire, GET, b"k") == (0, b"\0\0\0\x001")
        with server.connect() as wire:
            assert ask(wire, GET, b"k") == (AUTH_ERROR, b"Auth failure.")


def test_without_s_sasl_commands_are_unknown(memlite: RunningServer) -> None:
    with memlite.connect() as wire:
        assert ask(wire, LIST) == (0x81, b"Unknown command")
        assert ask(wire, AUTH, b"PLAIN", b"\0foo\0bar") == (0x81, b"Unknown command")
        assert ask(wire, NOOP)[0] == 0


# Real clients


_PYLIBMC = """
import pylibmc, sys
def client(password):
    return pylibmc.Client([sys.argv[1]], binary=True, username="foo", password=password)
assert client("bar").set("pylibmc", "value")
assert client("bar").get("pylibmc") == "value"
try:
    client("baz").get("pylibmc")
except pylibmc.Error as error:
    assert "AUTHENTICATION FAILURE" in str(error), error
else:
    raise AssertionError("a wrong password is right")
"""
_PLUGINS = sorted(Path("/usr/lib").glob("*/sasl2/libplain.so*"))


@pytest.mark.skipif(
    not _PLUGINS,
    reason="the SASL plug-in for PLAIN is not installed (apt install libsasl2-modules)",
)
def test_pylibmc(sasl: RunningServer) -> None:
    pytest.importorskip("pylibmc")
    # pylibmc's own libsasl looks for mechanisms in the folder where it was built, unless
    # configured.
    done = subprocess.run(
        [sys.executable, "-c", _PYLIBMC, f"127.0.0.1:{sasl.port}"],
        env={**os.environ, "SASL_PATH": str(_PLUGINS[0].parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_python_binary_memcached(sasl: RunningServer) -> None:
    address = f"127.0.0.1:{sasl.port}"
    client = bmemcached.Client(address, "foo", "bar")
    assert client.set("bmemcached", "value")
    assert client.get("bmemcached") == "value"
    client.disconnect_all()
    client = bmemcached.Client(address, "foo", "baz")
    with pytest.raises(bmemcached.exceptions.MemcachedException, match=r"Auth failure\."):
        client.get("bmemcached")
    client.disconnect_all()


@pytest.mark.slow
def test_the_load_tester(users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = tmp_path / "password"
    password.write_text("bar\n")
    with running("memlite", "-Y", str(users)) as server:
        measure = [
            *("run", f"127.0.0.1:{server.port}"),
            *("--clients", "4", "--operations", "200", "--keys", "10", "--repetitions", "1"),
            *("--workers", "1", "--no-report", "-q", "--out", str(tmp_path / "out")),
        ]

        def run(*more: str) -> tuple[int, str]:
            done = bench(*measure, *more)
            return done.returncode, done.stderr

        login = ("--user", "foo", "--password-file", str(password))
        for more in [(), ("--rate", "1000"), ("--client", "pymemcache"), ("--mix", "get=1,add=1")]:
            assert run(*login, *more) == (0, "")
        monkeypatch.setenv("MEMLITE_BENCH_PASSWORD", "bar")
        assert run("--user", "foo") == (0, "")
        monkeypatch.setenv("MEMLITE_BENCH_PASSWORD", "no")
        code, said = run("--user", "foo")
        assert code == 71
        assert said.endswith("authentication as foo: CLIENT_ERROR authentication failure\n")
        monkeypatch.delenv("MEMLITE_BENCH_PASSWORD")
        code, said = run()
        assert code == 71
        assert said.endswith("requires a password: use --user and --password-file\n")


@pytest.mark.parametrize(
    ("name", "count", "failing"),
    [("ascii-auth", 10, []), ("ascii-auth2", 4, []), ("binary-sasl", 33, ["list_mechs PLAIN"])],
)
def test_memcacheds_own_sasl_tests(
    tmp_path: Path, name: str, count: int, failing: list[str]
) -> None:
    """All tests pass, except for the one that expects CRAM-MD5 too."""
    script = Path(memcached_path() or "").parent / "t" / f"{name}.t"
    perl = shutil.which("perl")
    if not script.is_file() or perl is None:
        pytest.skip(f"no perl, or no test-suite beside the memcached that {PEER_VARIABLE} names")
    users = write_users(tmp_path, b"testuser@memcached.realm:testpass\n")
    for program, text in {
        "memcached-debug": f'exec {sys.executable} -m memlite "$@"\n',
        "timedrun": 'shift; exec "$@"\n',
        "saslpasswd2": "true\n",
    }.items():
        (tmp_path / program).write_text("#!/bin/sh\n" + text)
        (tmp_path / program).chmod(0o755)
    done = subprocess.run(
        [perl, str(script)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "RUN_SASL_TESTS": "1",
            "MEMCACHED_SASL_PWDB": str(users),
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    lines = done.stdout.splitlines()
    failed = [line.partition(" - ")[2] for line in lines if line.startswith("not ok")]
    assert failed == failing, done.stdout
    assert sum(line.startswith("ok ") for line in lines) == count, done.stdout + done.stderr
