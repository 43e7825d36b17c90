"""Possible contents of a file system after a loss of power, from recorded system calls.

The model is that of POSIX: written data is durable once an fsync of the file that began later has
ended, and a name once an fsync of its folder has. Everything else may be in any state: a
block of 512 bytes may be whole, zero or garbage, and a change of names may be present if all
earlier ones are.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

__all__ = ["Call", "Disk", "calls_of"]

BLOCK = 512
TRACED = (
    "openat", "write", "writev", "sendto", "sendmsg", "fsync", "fdatasync", "ftruncate", "truncate",
    "rename", "unlink",
)  # fmt: skip
COMMAND = ["strace", "-f", "-qq", "-y", "-xx", "-s", "10000000", "-e", f"trace={','.join(TRACED)}"]
"""Records the calls of a server; append ``-o FILE`` and the server's command."""

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_HEX = re.compile(r"(?:\\x[0-9a-f]{2})+")


class Call(NamedTuple):
    """A system call that has ended.

    Attributes:
        name: its name.
        arguments: as strace writes them, with strings as latin-1.
        result: what it returned.
        begun: the number of calls that had ended when it began.
    """

    name: str
    arguments: str
    result: int
    begun: int


def _text(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("\\x", "")).decode("latin-1")


def calls_of(trace: Path) -> list[Call]:
    """Return the calls in a file written by strace, in the order in which they ended."""
    calls: list[Call] = []
    begun: dict[str, tuple[int, str]] = {}
    for line in trace.read_text().splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        thread, resumed, name, rest = match.groups()
        if rest.endswith("<unfinished ...>"):
            begun[thread] = len(calls), rest.removesuffix("<unfinished ...>")
            continue
        start = len(calls)
        if resumed:
            start, first = begun.pop(thread)
            rest = first + rest
        arguments, equals, result = rest.rpartition(" = ")
        number = re.match(r"-?\d+", result)
        if equals and number:
            calls.append(Call(resumed or name, _HEX.sub(_text, arguments), int(number[0]), start))
    return calls


@dataclass
class _File:
    content: bytes = b""
    # The contents that are not durable yet, with the number of calls at the time.
    history: list[tuple[int, bytes]] = field(default_factory=list)
    durable: bytes = b""


class Disk:
    """The files of a folder while calls are replayed.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._files: dict[int, _File] = {}  # by descriptor
        self._folders: set[int] = set()
        self._names: list[tuple[int, dict[str, _File]]] = [(0, {})]
        self._done = 0

    def replay(self, call: Call) -> None:
        """Carry out a call."""
        self._done += 1
        if call.result >= 0:
            carry_out = getattr(self, f"_{call.name}", None)
            if carry_out is not None:
                carry_out(call)

    @property
    def _now(self) -> dict[str, _File]:
        return self._names[-1][1]

    def _rename_all(self, names: dict[str, _File]) -> None:
        self._names.append((self._done, names))

    def _path(self, quoted: str) -> str | None:
        path = quoted.split('"')[1]
        return path if path.startswith(f"{self._folder}/") else None

    def _file_of(self, call: Call) -> _File | None:
        descriptor, _, rest = call.arguments.partition("<")
        return self._files.get(int(descriptor)) if rest.startswith(self._folder) else None

    def _set(self, file: _File, content: bytes) -> None:
        file.content = content
        file.history.append((self._done, content))

    def _openat(self, call: Call) -> None:
        path = call.arguments.split('"')[1]
        self._files.pop(call.result, None)
        self._folders.discard(call.result)
        if path == self._folder:
            self._folders.add(call.result)
        if not path.startswith(f"{self._folder}/"):
            return
        file = self._now.get(path)
        if file is None:
            file = _File()
            self._rename_all({**self._now, path: file})
        elif "O_TRUNC" in call.arguments:
            self._set(file, b"")
        self._files[call.result] = file

    def _write(self, call: Call) -> None:
        file = self._file_of(call)
        if file is not None:
            # The data is between the first and the last quotation mark.
            data = call.arguments[call.arguments.index('"') + 1 : call.arguments.rindex('"')]
            self._set(file, file.content + data.encode("latin-1")[: call.result])

    def _ftruncate(self, call: Call) -> None:
        file = self._file_of(call)
        if file is not None:
            self._set(file, file.content[: int(call.arguments.rpartition(",")[2].rstrip(") "))])

    def _fsync(self, call: Call) -> None:
        descriptor = int(call.arguments.partition("<")[0])
        if descriptor in self._folders:
            kept = [names for names in self._names if names[0] <= call.begun]
            self._names = [kept[-1], *(names for names in self._names if names[0] > call.begun)]
            return
        file = self._file_of(call)
        if file is not None:
            for at, content in file.history:
                if at <= call.begun:
                    file.durable = content
            file.history = [entry for entry in file.history if entry[0] > call.begun]

    _fdatasync = _fsync

    def _rename(self, call: Call) -> None:
        old, new = call.arguments.split('"')[1::2][:2]
        names = dict(self._now)
        if old in names:
            names[new] = names.pop(old)
            self._rename_all(names)

    def _unlink(self, call: Call) -> None:
        path = self._path(call.arguments)
        if path in self._now:
            self._rename_all({name: file for name, file in self._now.items() if name != path})

    def states(self, rng: random.Random) -> Iterator[dict[str, bytes]]:
        """Yield possible contents of the folder, by path, if the power fails now."""
        yield {name: file.durable for name, file in self._names[0][1].items()}
        yield {name: file.content for name, file in self._now.items()}
        names = rng.choice(self._names)[1]
        yield {name: self._partly(file, rng) for name, file in names.items()}

    def _partly(self, file: _File, rng: random.Random) -> bytes:
        """Return content from which some blocks that are not durable are missing."""
        content = rng.choice([file.durable, *(content for _, content in file.history)])
        kept = len(file.durable) if content.startswith(file.durable) else 0
        result = bytearray(content[: rng.randint(kept, len(content))])
        at = kept
        while at < len(result):
            end = min(len(result), (at // BLOCK + 1) * BLOCK)
            chance = rng.random()
            if chance < 0.3:
                result[at:end] = bytes(end - at)
            elif chance < 0.4:
                result[at:end] = rng.randbytes(end - at)
            at = end
        return bytes(result)
