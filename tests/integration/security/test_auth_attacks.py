"""Unauthorized clients that try to gain access, or to lock others out."""

import contextlib
import os
import signal
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memlite.server.auth.throttle import FAILURES, PATIENCE, SECONDS_EACH
from tests.support.logins import FAILURE, LOGIN, STORED, UNAUTHENTICATED, write_users
from tests.support.patience import patiently
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]

WRONG = b"set x 0 0 7\r\nfoo bab\r\n"
TOO_MANY = b"CLIENT_ERROR too many failed authentications, try again later\r\n"
# A million attempts take minutes: MEMLITE_TEST_BAD_LOGINS=1000000.
BAD_LOGINS = int(os.environ.get("MEMLITE_TEST_BAD_LOGINS", "20000"))


@pytest.fixture
def users(tmp_path: Path) -> str:
    return str(write_users(tmp_path, b"foo:bar\n"))


def connect_from(host: str, server: RunningServer) -> Wire:
    """Connect from a given loopback address of this machine."""
    sock = socket.socket()
    sock.settimeout(60)
    sock.bind((host, 0))
    sock.connect(("127.0.0.1", server.port))
    return Wire(sock)


def is_closed(wire: Wire) -> bool:
    wire.sock.settimeout(0.01)
    try:
        return wire.sock.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


# Unfinished authentication


@pytest.mark.parametrize("kind", ["memlite", "memlite-asyncio", "memlite-near"])
def test_a_client_that_does_not_authenticate_in_time_is_closed(users: str, kind: str) -> None:
    with running(kind, "-Y", users, "--auth-timeout", "1") as server:
        good, silent, half_a_line, half_a_token, failed = (server.connect() for _ in range(5))
        half_a_line.send(b"set x 0")
        half_a_token.send(b"set x 0 0 7\r\nfoo")
        assert failed.ask(WRONG) == FAILURE
        assert good.ask(LOGIN) == STORED
        for wire in (silent, half_a_line, half_a_token, failed):
            assert wait_until(lambda wire=wire: is_closed(wire), 30)  # type: ignore[misc]
            wire.sock.close()
        with good:
            assert good.ask(b"get x\r\n") == b"END\r\n"
            assert good.stats()["curr_connections"] == "1"


def test_sending_bytes_slowly_does_not_extend_the_time_limit(users: str) -> None:
    with running("memlite", "-Y", users, "--auth-timeout", "1") as server, server.connect() as wire:
        wire.send(b"set x 0 0 1000\r\n")
        deadline = time.monotonic() + 60
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while not is_closed(wire):
                assert time.monotonic() < deadline
                wire.send(b"a")
                time.sleep(0.1)


def test_without_a_time_limit_silent_clients_stay_connected(users: str) -> None:
    with running("memlite", "-Y", users, "--auth-timeout", "0") as server, server.connect() as wire:
        assert not wait_until(lambda: is_closed(wire), 2.5, 0.2)


def test_unauthenticated_clients_cannot_take_all_connections(users: str) -> None:
    with running("memlite", "-Y", users, "-c", "20") as server:
        with server.connect() as first:
            assert first.ask(LOGIN) == STORED
            strangers = [server.connect() for _ in range(60)]
            with server.connect() as good:
                assert good.ask(LOGIN) == STORED
                assert int(good.stats()["curr_connections"]) <= 20
                assert sum(map(is_closed, strangers)) >= 60 - 18
            # Authenticated clients keep their connections.
            assert first.ask(b"get x\r\n") == b"END\r\n"
        for wire in strangers:
            wire.sock.close()


def test_watchers_see_connections_that_were_closed_to_make_room(users: str) -> None:
    with running("memlite", "-Y", users, "-c", "3") as server, server.connect() as watcher:
        assert watcher.ask(LOGIN) == STORED
        assert watcher.ask(b"watch connevents\r\n") == b"OK\r\n"
        strangers = [server.connect() for _ in range(5)]
        lines = [watcher.line() for _ in range(5 + 3)]
        for wire in strangers:
            wire.sock.close()
        opened = [line.split()[-1] for line in lines if b"type=conn_new " in line]
        closed = [line.split()[-1] for line in lines if b"type=conn_close " in line]
        assert len(opened) == 5
        assert closed == opened[:3]


def test_authenticated_clients_may_take_all_connections(users: str) -> None:
    with running("memlite", "-Y", users, "-c", "5") as server:
        good = [server.connect() for _ in range(5)]
        for wire in good:
            assert wire.ask(LOGIN) == STORED
        assert server.ask(b"") == b"ERROR Too many open connections\r\n"
        for wire in good:
            assert wire.ask(b"get x\r\n") == b"END\r\n"
            wire.sock.close()


# Wrong passwords


@pytest.mark.slow
@pytest.mark.alone
@patiently
def test_attempts_are_delayed_per_address(users: str) -> None:
    with running("memlite", "-Y", users) as server:
        with connect_from("127.0.0.9", server) as bad, connect_from("127.0.0.9", server) as worse:
            bad.send(WRONG * (FAILURES + 2))
            began = time.monotonic()
            assert bad.exactly(FAILURES * len(FAILURE)) == FAILURE * FAILURES
            assert time.monotonic() - began < SECONDS_EACH
            assert bad.exactly(2 * len(FAILURE)) == FAILURE * 2
            assert time.monotonic() - began >= SECONDS_EACH * 0.9
            # More attempts than may wait at once: the excess is refused, and those connections
            # closed.
            flood = [connect_from("127.0.0.9", server) for _ in range(30)]
            for wire in flood:
                wire.send(WRONG)
            # Another address has no delay.
            began = time.monotonic()
            with connect_from("127.0.0.8", server) as good:
                assert good.ask(LOGIN) == STORED
                assert time.monotonic() - began < 0.5
                assert wait_until(lambda: int(good.stats()["auth_errors"]) >= FAILURES + 15)
            worse.send(WRONG)
            assert worse.rest() == TOO_MANY
            for wire in flood:
                wire.sock.close()
        # This address is not delayed either, once the connections ahead of it have given up.
        began = time.monotonic()
        while True:
            with connect_from("127.0.0.9", server) as wire:
                if wire.ask(LOGIN) == STORED:
                    break
            time.sleep(0.1)
        assert time.monotonic() - began < 2 * PATIENCE + 1


@pytest.mark.timeout(300 + BAD_LOGINS / 500)
def test_bad_logins_from_many_addresses_take_little_memory(users: str) -> None:
    with running("memlite", "-Y", users, "-c", "200") as server, server.connect() as good:
        assert good.ask(LOGIN + b"set k 0 0 1\r\n1\r\n") == STORED
        assert good.line() == STORED
        times, memory, sent, number = [], 0, 0, 0
        while sent < BAD_LOGINS:
            number += 1
            host = f"127.1.{number >> 8 & 255}.{(number & 255)}"
            with connect_from(host, server) as bad:
                bad.send(WRONG * FAILURES)
                assert bad.exactly(FAILURES * len(FAILURE)) == FAILURE * FAILURES
            sent += FAILURES
            if number % 100 == 0:
                began = time.monotonic()
                with server.connect() as another:
                    assert another.ask(LOGIN) == STORED
                    assert another.ask(b"get k\r\n").startswith(b"VALUE")
                times.append(time.monotonic() - began)
                memory = memory or server.resident_kib()
        grown = server.resident_kib() - memory
        stats = good.stats()
    assert int(stats["auth_errors"]) == sent
    assert grown < 8 * 1024, f"{grown} KiB more for {sent} bad logins"
    assert statistics.median(times) < 1


def test_input_before_authentication_is_bounded(users: str) -> None:
    with running("memlite", "-Y", users, "-c", "300") as server:
        before = server.resident_kib()
        strangers = [server.connect() for _ in range(200)]
        for wire in strangers:
            wire.send(b"set x 0 0 16384\r\n" + b"x" * 16_000)
        with server.connect() as good:
            assert good.ask(LOGIN) == STORED
        assert server.resident_kib() - before < 200 * 64
        for wire in strangers:
            wire.sock.close()


def test_a_client_that_reads_no_replies_takes_little_memory(users: str) -> None:
    with running("memlite", "-Y", users) as server, server.connect() as wire:
        before = server.resident_kib()
        wire.sock.settimeout(1)
        with pytest.raises(TimeoutError):
            while True:
                wire.send(b"get x\r\n" * 10_000)
        with server.connect() as good:
            assert good.ask(LOGIN) == STORED
        assert server.resident_kib() - before < 16 * 1024
        wire.sock.settimeout(60)
        assert wire.line() == UNAUTHENTICATED


def test_the_server_stops_while_an_attempt_is_delayed(users: str) -> None:
    with running("memlite", "-Y", users) as server, server.connect() as wire:
        wire.send(WRONG * (FAILURES + 2))
        assert wire.exactly(FAILURES * len(FAILURE)) == FAILURE * FAILURES
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 5
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("sent", [b"set x 0 0", b"set x 0 0 7\r\nfoo", WRONG * (FAILURES + 2)])
def test_unauthenticated_clients_do_not_delay_a_graceful_stop(users: str, sent: bytes) -> None:
    with running("memlite", "-Y", users) as server, server.connect() as wire:
        wire.send(sent)
        with server.connect() as good:
            assert good.ask(LOGIN) == STORED
            began = time.monotonic()
            assert server.stop(signal.SIGUSR1) == 0
            assert time.monotonic() - began < 5


def test_a_client_disconnects_while_its_attempt_is_delayed(users: str) -> None:
    with running("memlite", "-Y", users, "--auth-timeout", "3") as server:
        for _ in range(3):
            with connect_from("127.0.0.9", server) as wire:
                wire.send(WRONG * (FAILURES + 1))
        with server.connect() as good:
            assert good.ask(LOGIN) == STORED
            # The first connection closes after the reply to its attempt; for the others, the
            # delay is too long.
            assert wait_until(lambda: good.stats()["curr_connections"] == "1", 30)
        assert "Traceback" not in server.log.read_text()
