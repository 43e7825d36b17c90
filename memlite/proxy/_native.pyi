from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

__all__ = [
    "VERSION",
    "Asked",
    "Batch",
    "Flusher",
    "Lone",
    "MultiGet",
    "Part",
    "Receiver",
    "Traced",
    "Turns",
    "Writer",
    "deliver",
    "expect",
    "gather",
    "hand_out",
    "interleave",
    "items",
    "know",
    "send_progress",
    "split",
    "split_gets",
    "split_keys",
]

VERSION: Final = 9

_Owner = TypeVar("_Owner")

def split_gets(data: bytes, /) -> tuple[list[bytes], int]: ...
def items(keys: list[bytes], reply: bytes, position: int, /) -> tuple[list[bytes], int]: ...
def gather(owners: list[_Owner], values: list[bytes], /) -> dict[_Owner, list[bytes]]: ...
def interleave(
    owners: list[_Owner], parts: dict[_Owner, list[bytes]], each: bytes, last: bytes, /
) -> bytes: ...
def deliver(dues: list[Any], /) -> None: ...
def send_progress(partly: list[Any], /) -> None: ...
def hand_out(
    node: object,
    data: bytes,
    pending: object,
    answered: int,
    last_sent: int,
    last_timed: int,
    batch_part: type,
    /,
) -> int: ...
def expect(table: dict[bytes, tuple[bytes, ...]], /) -> None: ...

class Asked:
    def extend(self, requests: list[bytes], /) -> None: ...
    def take(self, reply: bytes, more: bool, /) -> bool: ...
    def skip(self) -> None: ...
    def clear(self) -> None: ...

class Lone:
    executor: Any
    write: Any
    counters: Any
    by_line: Any
    nodes: Any
    others: Any
    out: Any
    dues: Any
    partly: Any
    turns: Any
    timing: Any
    since: int
    most: int
    alone: bool
    reads: bool
    due: bool
    progresses: bool
    def __init__(self, executor: Any, /) -> None: ...
    def answer(self, reply: bytes, /) -> None: ...
    def fail(self, error: bytes, /) -> None: ...
    def take(self, by_line: dict[bytes, Any], data: bytes, kind: type, /) -> bool: ...
    def take_batch(self, data: bytes, /) -> int: ...
    def take_keys(self, data: bytes, /) -> bool: ...
    def take_set(
        self, known_nodes: dict[bytes, Any], data: bytes, most: int, kind: type, /
    ) -> bool: ...

def split(
    data: bytes,
    by_line: dict[bytes, Any],
    known_nodes: dict[bytes, Any],
    most: int,
    longest: int,
    kind: type,
    /,
) -> tuple[list[tuple[Any, bytes, int]], bytes, int, bool] | None: ...
def split_keys(
    data: bytes, known_nodes: dict[bytes, Any], kind: type, /
) -> tuple[list[tuple[Any, bytes, int]], bytes] | None: ...

class Part:
    missing: int
    have: int
    request: bytes | None
    reads: bool
    def answer(self, reply: bytes, /) -> None: ...
    def fail(self, error: bytes, /) -> None: ...
    def progressed(self) -> None: ...
    def pieces(self) -> list[bytes]: ...

class Batch:
    reply: bytes | None
    observer: Any
    closes: bool
    waits: bool
    def __init__(self, executor: Any, order: bytes, /) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def held(self) -> int: ...
    def part(self, count: int, *, reads: bool) -> Part: ...
    def available(self) -> bytes: ...
    def discard(self) -> None: ...

class MultiGet:
    reply: bytes | None
    observer: Any
    answered_by_all: Any
    closes: bool
    @property
    def waits(self) -> bool: ...
    def __init__(
        self, executor: Any, found: list[tuple[Any, bytes, int]], order: bytes, /
    ) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def reads(self) -> bool: ...
    def part(self, index: int, /) -> Part: ...
    def discard(self) -> None: ...

class Writer:
    def __init__(self, transport: Any, number: int, /) -> None: ...
    def __call__(self, data: bytes, /) -> None: ...

class Flusher:
    def __init__(self, node: Any, /) -> None: ...
    def __call__(self) -> None: ...

class Turns:
    left: int
    done: Any
    cluster: Any
    offset: int
    def __init__(self, every: int, /) -> None: ...
    @property
    def every(self) -> int: ...
    def passes(self) -> bool: ...
    def is_near(self) -> bool: ...
    def take_lines(self) -> tuple[bytes, int]: ...

class Traced:
    sent: int
    @property
    def reads(self) -> bool: ...
    @property
    def client(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def request(self) -> bytes: ...
    @property
    def reply(self) -> bytes: ...
    @property
    def size(self) -> int: ...
    @property
    def keys(self) -> int: ...
    @property
    def arrival(self) -> int: ...
    @property
    def received(self) -> int: ...
    @property
    def replied_at(self) -> int: ...
    def answer(self, reply: bytes, /) -> None: ...
    def fail(self, error: bytes, /) -> None: ...
    def ready(self) -> None: ...
    def replied(self, replies: Any, /) -> None: ...

class Receiver:
    @overload
    def __init__(self, link: type, /) -> None: ...
    @overload
    def __init__(
        self,
        connection: type,
        executor: type,
        counters: type,
        clock: type,
        longest_get: int,
        /,
    ) -> None: ...
    def __get__(self, protocol: Any, kind: type | None = None, /) -> Any: ...

def know(
    node: type,
    link: type,
    deque: type,
    batch_part: type,
    keys_part: type,
    timing: type,
    lease: type,
    scheduler: type,
    histogram: type,
    monotonic: Callable[[], float],
    monotonic_ns: Callable[[], int],
    many_pending: int,
    between_times: float,
    between_its_times: float,
    /,
) -> None: ...
