"""The number of workers for the settings, and the process that starts and supervises them."""

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memlite.config import MEGABYTE, Config
from memlite.config.parsers import Automatic
from memlite.core import signals
from memlite.core.errors import ConfigError, StartError
from memlite.core.machine import free_memory
from memlite.server.connections.listeners import Listener
from memlite.server.service import ServiceManager
from memlite.server.workers.board import Board, Cell
from memlite.server.workers.health import Watch, read_thread_state, stuck_workers
from memlite.server.workers.shared import asks_store

if TYPE_CHECKING:
    from memlite.memory.shared import Mapping

__all__ = ["Supervisor", "make_mapping", "workers_of"]

_log = logging.getLogger("memlite")

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD}
# If more workers than this crash within so many seconds, something is wrong with all of them.
_CRASHES = 30
_CRASH_SECONDS = 10.0
_FAILED = 70  # EX_SOFTWARE
# Seconds between two checks of the workers.
_CHECK_SECONDS = 0.1
_ACCEPTED_AT_ONCE = 32
# How many more connections one worker may have than another: this share, plus one connection.
_UNEVEN = 1 / 16


def workers_of(config: Config) -> int:
    """Return the number of processes that serve: one where several are not supported.

    Raises:
        ConfigError: a file is to keep the shared table (``-e``), but no table is shared.
    """
    alone = ""
    remote = asks_store(config)
    if config.write_back:
        alone = "--write-back requires a single process"
    elif config.near_cache and not remote:
        alone = "--near-cache with several workers requires gs:// or valkey://"
    elif config.backend != "memory://" and not remote:
        alone = "only memory://, gs:// and valkey:// support several workers"
    elif config.join or config.name or config.advertise or config.spare:
        alone = "a cluster member (--join) is a single process"
    elif sys.platform != "linux":
        alone = "several workers require Linux"
    if config.memory_file is not None and (alone or remote):
        raise ConfigError(
            f"-e: requires a table shared by workers; {alone or 'the store keeps the items'}"
        )
    if alone:
        _log.warning("-t: using one worker: %s", alone)
        return 1
    return _as_many_as_fit(config) if isinstance(config.threads, Automatic) else config.threads


def _as_many_as_fit(config: Config) -> int:
    """Return the number of workers for ``-t auto``: one if their memory cannot be allocated."""
    from memlite.memory.shared.layout import Layout

    limit, free = config.memory_limit * MEGABYTE, free_memory()
    if free is not None and limit > free:
        _log.warning("-t: using one worker: -m exceeds the free memory")
        return 1
    for count in range(config.threads, 1, -1):
        with contextlib.suppress(ConfigError):
            Layout.of(limit, config.max_item_size, count)
            return count
    return 1


def make_mapping(config: Config, workers: int, now: float) -> "Mapping":
    """Return the mapping for the items of several workers.

    Args:
        config: the settings.
        workers: the number of workers.
        now: the unix time.

    Raises:
        ConfigError: there is too little memory for them.
        StartError: the memory cannot be mapped, or the file that keeps it (``-e``) cannot be used.
    """
    from memlite.memory.shared import Mapping, MemoryFile, native

    limit, path = config.memory_limit * MEGABYTE, config.memory_file
    file = None if path is None else MemoryFile(path)
    free = free_memory()
    if free is not None and limit - (0 if file is None else file.allocated) > free:
        raise StartError(
            f"-m: {config.memory_limit} MiB exceeds the {free // MEGABYTE} MiB of free memory (-t "
            "and -e allocate all of -m at startup)"
        )
    mapping = Mapping(limit, config.max_item_size, workers, file=file, now=now)
    mapping.table.evicts = not config.disable_evictions
    _log.info("%d workers share a table in %s", workers, "C" if native() else "Python")
    if mapping.refused:
        _log.warning("-e: not using %s: %s; starting empty", path, mapping.refused)
    elif mapping.kept is not None:
        _log.info("-e: %s: restored %d items", path, mapping.kept)
    return mapping


Work = Callable[[int, socket.socket, Callable[[], None]], None]
"""The main function of a worker. Takes the worker's number, the channel that passes accepted
sockets, and a function to call once the worker takes them."""


class _Worker:
    """A worker as seen by its parent.

    Attributes:
        number: its number.
        pid: its process ID.
        passed: number of connections passed to it.
        watch: tells whether it is stuck.
    """

    def __init__(self, number: int, pid: int, channel: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.passed = 0
        self.watch = Watch()
        self._channel = channel

    def take(self, accepted: socket.socket, listener: int, *, over: bool) -> bool:
        """Pass it a connection, which may be over the limit; return whether that worked."""
        try:
            socket.send_fds(self._channel, [bytes([listener, over])], [accepted.fileno()])
        except OSError:  # it has ended, or is too busy to take more
            return False
        self.passed += 1
        return True

    def connections(self, board: Board) -> int:
        """Return how many connections it has or is about to take."""
        return self.passed - board.read(self.number, Cell.ENDED)

    def look(self, board: Board, seconds: float) -> None:
        """Check its heartbeat; see `Watch.look`."""
        read = board.read
        beat, work = read(self.number, Cell.BEAT), read(self.number, Cell.WORK)
        serves = read(self.number, Cell.PID) == self.pid
        if self.watch.look(beat, work, serves=serves, seconds=seconds):
            self.watch.ask(read_thread_state(self.pid))

    def send(self, number: int) -> None:
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def close(self) -> None:
        """Close the channel to it."""
        self._channel.close()


class Supervisor:
    """Starts workers, gives them connections in turn, and replaces workers that end.

    One process accepts for all workers. With one socket per worker, the kernel would spread
    connections unevenly, and connections queued for a worker that is killed would be lost.

    Args:
        work: the main function of a worker.
        listeners: the listening sockets.
        board: communication between the workers.
        limit: the maximum number of connections (``-c``).
        service: notified of the state of the server.
    """

    def __init__(
        self,
        work: Work,
        listeners: Sequence[Listener],
        board: Board,
        limit: int,
        service: ServiceManager,
    ) -> None:
        count = board.workers
        self._board = board
        self._limit = limit
        self._service = service
        self._interval = min(_CHECK_SECONDS, service.interval or _CHECK_SECONDS)
        self._checked = time.monotonic()
        self._count = count
        self._work = work
        self._listeners = list(listeners)
        self._workers: dict[int, _Worker] = {}
        self._turn = 0
        self._crashes: list[float] = []
        self._awaited = count
        self._readable, self._ready = os.pipe()
        self._woken, self._waker = socket.socketpair()

    def run(self, ready: Callable[[], object]) -> None:
        """Run until a signal stops the workers, or all of them stop by themselves.

        Args:
            ready: called when all of them serve.

        Raises:
            StartError: the workers keep crashing.
        """
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno())
        for one in _SIGNALS:
            signal.signal(one, lambda *_: None)  # the signal wakes `_step`
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        try:
            for number in range(self._count):
                self._start(number)
            while self._workers:
                self._step(ready)
        except BaseException:
            self._send(signal.SIGKILL)
            raise
        finally:
            signals.block()
            signal.set_wakeup_fd(-1)

    def _step(self, ready: Callable[[], object]) -> None:
        """Wait for something to happen, and deal with it."""
        sources: list[int] = [self._woken.fileno()]
        if self._awaited:
            sources.append(self._readable)
        elif self._listeners:
            sources += [one.sock.fileno() for one in self._listeners]
        now = time.monotonic()
        if now >= self._checked + self._interval:
            self._check(now)
        found, _, _ = select.select(sources, [], [], self._interval)
        for source in found:
            if source == self._woken.fileno():
                for number in self._woken.recv(64):
                    self._handle_signal(number)
            elif source == self._readable:
                self._awaited -= len(os.read(self._readable, self._awaited))
                if not self._awaited:
                    ready()
            else:
                self._accept(source)

    def _check(self, now: float) -> None:
        """Kill workers that are stuck."""
        # If this process was not scheduled, the workers may not have been either.
        seconds = min(now - self._checked, 2 * _CHECK_SECONDS)
        self._checked = now
        workers = list(self._workers.values())
        for worker in workers:
            worker.look(self._board, seconds)
        found = stuck_workers([worker.watch for worker in workers])
        for worker in workers:
            if worker.watch in found:
                _log.error(
                    "worker %d has made no progress for %.1f s (%s); killing it",
                    worker.number, worker.watch.late, worker.watch.condition.value,
                )  # fmt: skip
                worker.send(signal.SIGKILL)
            if found:
                worker.watch.reset()  # it may have waited for the killed worker
        if not self._awaited:
            self._service.alive()

    def _handle_signal(self, number: int) -> None:
        """Handle a signal."""
        if number == signal.SIGCHLD:
            self._reap()
            return
        if number != signal.SIGHUP:
            self._stop_accepting()
        self._send(number)

    def _stop_accepting(self) -> None:
        if self._listeners:
            self._service.stopping()
        for listener in self._listeners:
            listener.remove_file()
            with contextlib.suppress(OSError):
                listener.sock.shutdown(socket.SHUT_RDWR)  # in the workers too
        self._listeners = []

    def _accept(self, source: int) -> None:
        for place, listener in enumerate(self._listeners):
            if listener.sock.fileno() == source:
                for _ in range(_ACCEPTED_AT_ONCE):
                    try:
                        accepted, _ = listener.sock.accept()
                    except OSError:
                        return
                    with accepted:
                        self._hand_out(accepted, place)

    def _hand_out(self, accepted: socket.socket, listener: int) -> None:
        """Pass a connection to a worker that takes it; if none does, it is closed."""
        workers = list(self._workers.values())
        over = sum(one.connections(self._board) for one in workers) >= self._limit
        # A worker that is starting may have to wait for its store.
        serving = [one for one in workers if self._board.read(one.number, Cell.PID) == one.pid]
        workers = serving or workers
        numbers = [one.connections(self._board) for one in workers]
        # Round robin. As connections come and go, some workers would end up with more of them:
        # these are tried last until the others have as many. Workers that may be stuck come last.
        most = min(numbers, default=0) * (1 + _UNEVEN) + 1
        count = len(workers)
        turns = range(self._turn + 1, self._turn + 1 + count)

        def last(turn: int) -> tuple[bool, bool]:
            return workers[turn % count].watch.suspect, numbers[turn % count] > most

        for turn in sorted(turns, key=last):
            if workers[turn % count].take(accepted, listener, over=over):
                self._turn = turn
                return

    def _start(self, number: int) -> None:
        parent = os.getpid()
        parent_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent_end.setblocking(False)
        worker_end.setblocking(False)
        pid = os.fork()
        if not pid:
            self._become(number, worker_end, parent)
        worker_end.close()
        self._workers[pid] = _Worker(number, pid, parent_end)

    def _become(self, number: int, channel: socket.socket, parent: int) -> None:
        """Serve as a worker, then exit."""
        code = _FAILED
        try:
            signals.block()
            signal.set_wakeup_fd(-1)
            for one in _SIGNALS:
                signal.signal(one, signal.SIG_DFL)
            for worker in self._workers.values():
                worker.close()
            os.close(self._readable)
            _end_with(parent)
            self._work(number, channel, self._tell_ready)
            code = 0
        except StartError as error:
            self._board.write_report(number, str(error))
        except BaseException:  # noqa: BLE001 - a process ends here, whatever happened
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(code)

    def _tell_ready(self) -> None:
        if self._awaited:  # only the initial workers are waited for
            os.write(self._ready, b".")
        signals.unblock()

    def _reap(self) -> None:
        """Reap workers that have ended, and replace them unless they were told to stop."""
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            worker = self._workers.pop(pid, None)
            if worker is None:
                continue
            worker.close()
            self._board.mark_dead(worker.number)
            if self._awaited:
                why = self._board.read_report(worker.number)
                raise StartError(why if isinstance(why, str) else "a worker exited during startup")
            code = os.waitstatus_to_exitcode(status)
            if code and self._listeners:
                _log.warning(
                    "worker %d ended with exit code %d; starting another", worker.number, code
                )
                self._note_crash()
                self._start(worker.number)
            elif self._listeners:  # a client's shutdown command
                self._stop_accepting()
                self._send(signal.SIGTERM)

    def _note_crash(self) -> None:
        now = time.monotonic()
        self._crashes = [one for one in self._crashes if one > now - _CRASH_SECONDS] + [now]
        if len(self._crashes) > _CRASHES:
            raise StartError(f"-t: {_CRASHES} workers failed within {_CRASH_SECONDS:.0f} seconds")

    def _send(self, number: int) -> None:
        for worker in self._workers.values():
            worker.send(number)


def _end_with(parent: int) -> None:
    """Make the kernel end this process when its parent ends."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(_FAILED)
