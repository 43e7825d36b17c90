"""Real pymemcache clients, each in a thread, that carry out a workload's requests as calls."""

import ssl
import threading
import time
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

from memlite.client.login import LoginRefusedError, TextLogin
from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.clients.admission import RefusedError
from memlite.loadtest.clients.settings import Check
from memlite.loadtest.recorder import SECOND, Recorder, Recording
from memlite.protocol import Limits, TextParser
from memlite.protocol.commands import Arguments, Command
from memlite.protocol.handler import NO_SHORTCUTS

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation
    from memlite.loadtest.workload import Workload

__all__ = ["PymemcacheClients", "refuse_unsupported"]

_RETRY_SECONDS = 0.1
_MAX_REPLY_LENGTH = 1000


def refuse_unsupported(workload: "Workload", rates: Sequence[float] | None) -> None:
    """Refuse loads that pymemcache cannot make.

    Args:
        workload: the clients' work.
        rates: the rates on the command line, in open loop.

    Raises:
        ConfigError: pymemcache cannot make the load; the text names the option.
    """
    load = workload.load
    refused = {
        "--rate": bool(rates or load.rate),
        "--pipeline": load.pipeline > 1,
        "--trace": bool(workload.trace),
        "a concurrent workload": workload.kind == "concurrent",
    }
    for what, wanted in refused.items():
        if wanted:
            raise ConfigError(f"bench: --client pymemcache cannot be combined with {what}")


class PymemcacheClients:
    """A worker's clients.

    Args:
        address: host and port, or the path of a UNIX socket.
        streams: for each client, a function that returns its next operation, or None at the end.
        timeout: seconds for a request.
        interval: the length of the intervals of the time series, in nanoseconds.
        think_time: seconds between a reply and the next request.
        check: checks the values of replies; None for no check.
        login: sent first on each connection; None for none.
        tls: encrypts connections; None for plain text.
    """

    def __init__(
        self,
        address: tuple[str, int] | str,
        streams: "Sequence[Callable[[], Operation | None]]",
        *,
        timeout: float,
        interval: int = SECOND,
        think_time: float = 0.0,
        check: Check | None = None,
        login: TextLogin | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._ended = threading.Event()
        self._go = threading.Event()
        self._clients = [
            _Client(
                address,
                login,
                tls,
                take,
                timeout,
                think_time,
                check,
                self._go,
                self._ended,
                Recorder(interval),
            )
            for take in streams
        ]

    def connect(self) -> None:
        """Connect all clients, and start their threads.

        Raises:
            RefusedError: the server does not serve all of them.
            OSError: a client cannot connect.
            StartError: that many threads cannot be started.
        """
        try:
            for one in self._clients:
                one.connect()
            for one in self._clients:
                one.start()
        except MemcacheError as error:
            raise RefusedError(str(error)) from None
        except RuntimeError:
            raise StartError(
                f"cannot start {len(self._clients):,} threads on this machine: use --client text"
            ) from None

    def start(self) -> None:
        """Let the clients make requests."""
        self._go.set()

    def begin(self) -> None:
        """Start measuring."""
        now = perf_counter_ns()
        for one in self._clients:
            one.begin_at = now

    def glance(self) -> tuple[int, int, float]:
        """Return operations and errors so far; see `Recorder.glance`."""
        counts = [one.recorder.counts for one in self._clients]
        return (
            sum(one.operations for one in counts),
            sum(sum(one.errors.values()) for one in counts),
            0.0,
        )

    @property
    def busy(self) -> bool:
        """Whether any client is still running."""
        return any(one.is_alive() for one in self._clients)

    def end(self) -> Recording:
        """Stop the clients, and return their measurements."""
        self._ended.set()
        self._go.set()
        total = Recording()
        for one in self._clients:
            one.join()
            total.add(one.recording)
        return total

    def abandon(self) -> None:
        """Stop the clients, some of which may not have started."""
        self._ended.set()
        self._go.set()
        for one in self._clients:
            one.close()


class _LoginClient(Client):  # type: ignore[misc]
    """A client that logs in on each new connection, which pymemcache's own client cannot do.

    Args:
        login: sent first; None for none.
    """

    def __init__(self, login: TextLogin | None, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._login = login

    def _connect(self) -> None:
        super()._connect()
        if self._login is not None:
            try:
                self.sock.sendall(self._login.request)
                with self.sock.makefile("rb") as replies:
                    self._login.check(replies.readline(_MAX_REPLY_LENGTH))
            except OSError:
                self.close()
                raise


class _Client(threading.Thread):
    """One client.

    Attributes:
        recorder: takes its measurements.
        recording: its measurements, at the end.
        begin_at: when measuring begins, in nanoseconds; 0 if not known yet.
    """

    def __init__(
        self,
        address: tuple[str, int] | str,
        login: TextLogin | None,
        tls: ssl.SSLContext | None,
        take: "Callable[[], Operation | None]",
        timeout: float,
        think_time: float,
        check: Check | None,
        go: threading.Event,
        ended: threading.Event,
        recorder: Recorder,
    ) -> None:
        super().__init__(daemon=True)
        self.recorder = recorder
        self.recording = Recording()
        self.begin_at = 0
        # When the last reply arrived; 0 before the first, and after an error.
        self._replied = 0
        self._take = take
        self._think_time = think_time
        self._check = check
        self._go, self._ended = go, ended
        self._client = _LoginClient(
            login,
            address,
            connect_timeout=timeout,
            timeout=timeout,
            no_delay=True,
            default_noreply=False,
            tls_context=tls,
        )
        self._calls = _Calls(self._client)
        self._parser = TextParser(Limits(item_size=1 << 30))

    def connect(self) -> None:
        self._client.version()

    def close(self) -> None:
        """Close the connection of a client whose thread is not running."""
        if not self.is_alive():
            self._client.close()

    def run(self) -> None:
        self._go.wait()
        recorder = self.recorder
        while not self._ended.is_set():
            if self.begin_at and not recorder.measuring:
                recorder.begin(self.begin_at)
            operation = self._take()
            if operation is None:
                break
            self._carry_out(operation)
            if self._think_time:
                time.sleep(self._think_time)
        self.recording = recorder.end()
        self._client.close()

    def _carry_out(self, operation: "Operation") -> None:
        recorder, counts = self.recorder, self.recorder.counts
        began = perf_counter_ns()
        try:
            found = self._ask(operation.request)
            if operation.follow is not None:
                self._ask(operation.follow(self._calls.unique))
        except (MemcacheError, OSError) as error:
            kind = _kind(error)
            counts.errors[kind] = counts.errors.get(kind, 0) + 1
            recorder.last = perf_counter_ns()
            self._replied = 0
            self._client.close()
            if isinstance(error, OSError):
                time.sleep(_RETRY_SECONDS)
            return
        now = recorder.last = perf_counter_ns()
        if now >= recorder.turn:
            recorder.next_interval(now)
        if self._replied:
            recorder.thought += began - max(self._replied, self.begin_at)
        self._replied = now
        counts.operations += operation.keys or 1
        if operation.keys:
            counts.hits += len(found)
            counts.misses += operation.keys - len(found)
            self._check_values(found)
        counts.sent += len(operation.request)
        counts.received += sum(map(len, found.values()))
        tally = recorder.response[operation.kind]
        microseconds = (now - began) // 1000
        tally[microseconds] = tally.get(microseconds, 0) + 1

    def _ask(self, request: bytes) -> dict[bytes, bytes]:
        self._calls.found = {}
        self._parser.receive(request, self._calls)
        return self._calls.found

    def _check_values(self, found: dict[bytes, bytes]) -> None:
        if self._check is None:
            return
        errors = self.recorder.counts.errors
        for key, value in found.items():
            if not self._check(key, value):
                errors["wrong value"] = errors.get("wrong value", 0) + 1


class _Calls:
    """Turns commands into calls of pymemcache; the handler of a `TextParser`.

    Attributes:
        found: values by key, of the last retrieval.
        unique: the cas unique of the last gets; None for a miss.
    """

    shortcuts = NO_SHORTCUTS

    def __init__(self, client: Client) -> None:
        self._client: Any = client
        self.found: dict[bytes, bytes] = {}
        self.unique: int | None = None

    def try_get(self, key: bytes) -> bool:
        """Leave the request to `get`."""
        return False

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Make the call that corresponds to a command's name."""
        getattr(self, command.name)(*arguments)

    def get(self, keys: list[bytes]) -> None:
        """Get."""
        self.unique = None
        if len(keys) == 1:
            value = self._client.get(keys[0])
            if value is not None:
                self.found[keys[0]] = value
        else:
            self.found = self._client.get_many(keys)

    def gets(self, keys: list[bytes]) -> None:
        """Get with unique."""
        value, unique = self._client.gets(keys[0])
        self.unique = None if unique is None else int(unique)
        if value is not None:
            self.found[keys[0]] = value

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Set."""
        self._client.set(key, value, exptime, noreply)

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """Set."""
        value = framed[framed.index(b"\n") + 1 : -len(b"\r\nEND\r\n")]
        self.set(key, 0, exptime, value, noreply)

    def add(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Add."""
        self._client.add(key, value, exptime, noreply)

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Replace."""
        self._client.replace(key, value, exptime, noreply)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Append."""
        self._client.append(key, value, exptime, noreply)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Prepend."""
        self._client.prepend(key, value, exptime, noreply)

    def cas(
        self, key: bytes, flags: int, exptime: int, value: bytes, unique: int, noreply: bool
    ) -> None:
        """Set if unchanged."""
        self._client.cas(key, value, b"%d" % unique, exptime, noreply)

    def delete(self, key: bytes, noreply: bool) -> None:
        """Delete."""
        self._client.delete(key, noreply)

    def incr(self, key: bytes, delta: int, noreply: bool) -> None:
        """Add to a number."""
        self._client.incr(key, delta, noreply)

    def decr(self, key: bytes, delta: int, noreply: bool) -> None:
        """Subtract from a number."""
        self._client.decr(key, delta, noreply)

    def touch(self, key: bytes, exptime: int, noreply: bool) -> None:
        """Set a new exptime."""
        self._client.touch(key, exptime, noreply)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"no workload makes a {name} request")


def _kind(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, LoginRefusedError):
        return str(error)[:100]
    if isinstance(error, ssl.SSLError):
        return "TLS failed"
    if isinstance(error, OSError):
        return "connection reset"
    text = error.args[0] if error.args else ""
    said = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    return said[:100] or type(error).__name__
