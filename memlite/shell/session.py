"""Carries out typed lines one by one, from a terminal, a pipe or the command line."""

import difflib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from memlite.client.login import TextLogin
from memlite.client.replies import is_error
from memlite.shell.dialects import MEMCACHED, Dialect
from memlite.shell.display import Display, Style
from memlite.shell.help import overview, topic
from memlite.shell.link import Link, LinkError
from memlite.shell.text import clean
from memlite.shell.typed import Awaiting, Local, Request, Typed, TypedError

__all__ = ["Output", "Session", "Source"]


@dataclass(frozen=True, slots=True)
class Output:
    """A stream to write to, and the styles it supports."""

    stream: BinaryIO
    style: Style


class Source(Protocol):
    """A source of lines."""

    def line(self) -> bytes | None:
        """Return the next line without its line ending; None at the end.

        Raises:
            TypedError: the line is not usable.
        """

    def value(self, length: int) -> bytes:
        """Return the value that a storage command announced.

        Args:
            length: its length in bytes.

        Raises:
            TypedError: the value has another length.
        """

    def skip(self, length: int | None) -> None:
        """Skip the input that belongs to a refused line.

        Args:
            length: bytes of the value that the line announced; None if it announced none.
        """

    def password(self, user: str) -> bytes:
        """Ask for a user's password without showing it, and return it.

        Raises:
            TypedError: there is no terminal to ask on.
        """


class Session:
    """A conversation with a server.

    Args:
        link: the connection to the server.
        display: renders replies.
        output: receives replies.
        errors: receives messages of the shell itself.
        dialect: the protocol spoken.
    """

    def __init__(
        self,
        link: Link,
        display: Display,
        output: Output,
        errors: Output,
        dialect: Dialect = MEMCACHED,
    ) -> None:
        self.link = link
        self.dialect = dialect
        self.failed = False
        """Whether any command has failed so far."""
        self.reachable = False
        """Whether the last attempt to connect succeeded."""
        self._display = display
        self._output = output
        self._errors = errors

    def run(self, source: Source, *, interactive: bool = False) -> None:
        """Carry out lines until the end, or until ``quit``.

        Args:
            source: provides the lines.
            interactive: whether the session survives an unreachable server, and ctrl-c, which then
                ends only the current command.
        """
        while True:
            try:
                line = source.line()
                if line is None:
                    return
                typed = self.dialect.read_line(line)
                if isinstance(typed, Awaiting):
                    typed = typed.request(source.value(typed.length))
                if isinstance(typed, Local) and typed.name == "quit":
                    return
                if typed is not None:
                    self.carry_out(typed, source.password)
                if isinstance(typed, Request) and not (self.reachable or interactive):
                    return
            except TypedError as error:
                self.complain(str(error))
                source.skip(error.announced)
            except KeyboardInterrupt:
                if not interactive:
                    raise
                self.say("(stopped)")

    def carry_out(self, typed: Typed, password: Callable[[str], bytes]) -> None:
        """Send a request and show the reply, or carry out a command of the shell itself.

        Raises:
            TypedError: the command is incomplete.
        """
        if isinstance(typed, Request):
            self._ask(typed)
        elif isinstance(typed, Awaiting):
            raise TypedError("a value is missing")
        elif typed.name == "help":
            arguments = typed.arguments
            style = self._output.style
            commands = self.dialect.commands
            text = topic(arguments[0], style, commands) if arguments else overview(style, commands)
            self._write(text.encode())
        elif typed.name == "auth":
            if len(typed.arguments) != 1:
                raise TypedError("usage: auth USER; see 'help auth'")
            (user,) = typed.arguments
            self.link.login = TextLogin(user.encode(), password(user))
            self.link.close()
            self.connect()

    def connect(self) -> bool:
        """Connect if necessary, and report changes; return whether there is a connection."""
        try:
            if self.link.refresh():
                self.say(f"({self.link.address} had closed the connection; reconnected)")
        except LinkError as error:
            self.reachable = False
            self.complain(str(error))
        else:
            self.reachable = True
        return self.reachable

    def say(self, text: str) -> None:
        """Write a message that is not a reply."""
        self._write_message(self._errors.style.dim(clean(text.encode())))

    def complain(self, text: str) -> None:
        """Write an error message."""
        self.failed = True
        shown = clean(text.encode("utf-8", "backslashreplace"))
        self._write_message(self._errors.style.red(f"(error) {shown}"))

    def _ask(self, request: Request) -> None:
        if not self.connect():
            return
        self._display.begin(request)
        refused = False
        try:
            with closing(self.link.ask(request.data, request.shape)) as parts:
                for part in parts:
                    refused = is_error(part)
                    self.failed = self.failed or refused
                    self._output.stream.writelines(self._display.part(part))
                    self._output.stream.flush()
        except LinkError as error:
            self._write(self._display.end(whole=False))
            self.complain(str(error))
        except KeyboardInterrupt:
            self._write(self._display.end(whole=False))
            raise
        else:
            self._write(self._display.end())
            if refused:
                self._suggest(request.words)

    def _suggest(self, words: tuple[bytes, ...]) -> None:
        """Suggest a known command with a similar name, if the command was unknown."""
        name = clean(words[0]) if words else ""
        if name not in self.dialect.commands:
            close = difflib.get_close_matches(name, self.dialect.commands, 1)
            if close:
                self.say(f"(unknown command {name}; did you mean {close[0]}?)")

    def _write(self, data: bytes) -> None:
        if data:
            self._output.stream.write(data)
            self._output.stream.flush()

    def _write_message(self, text: str) -> None:
        self._errors.stream.write(f"{text}\n".encode())
        self._errors.stream.flush()
