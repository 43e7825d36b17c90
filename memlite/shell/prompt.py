"""The prompt of an interactive session: line editing, history and completion."""

import getpass
from collections import deque
from collections.abc import Iterable, Mapping

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import DummyHistory

from memlite.shell.commands import Command
from memlite.shell.completion import candidates, hint
from memlite.shell.history import FileHistory, history_path
from memlite.shell.session import Session
from memlite.shell.typed import TypedError

__all__ = ["run"]


def run(session: Session) -> None:
    """Run an interactive session until the user leaves."""
    if session.connect():
        session.say(f"connected to {session.link.address}; help lists commands, ctrl-d leaves")
    session.run(PromptSource(session), interactive=True)


class PromptSource:
    """Reads lines from the terminal.

    Args:
        session: the session whose address the prompt shows.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._line_prompt: PromptSession[str] = PromptSession(
            history=FileHistory(history_path()),
            completer=_Completer(session.dialect.commands),
            complete_while_typing=False,
            bottom_toolbar=self._toolbar,
        )
        self._value_prompt: PromptSession[str] = PromptSession(history=DummyHistory())
        # The unread lines of a multi-line paste.
        self._pasted: deque[str] = deque()

    def line(self) -> bytes | None:
        """Return the next line, or None when the user leaves (ctrl-d). Ctrl-c clears the line."""
        while not self._pasted:
            where = str(self._session.link.address) if self._session.reachable else "not connected"
            try:
                self._pasted.extend(self._line_prompt.prompt(f"{where}> ").split("\n"))
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None
        return _encode(self._pasted.popleft())

    def value(self, length: int) -> bytes:
        """Return a value of `length` bytes, typed on one or more lines joined by newlines.

        Raises:
            TypedError: the input exceeded `length`, or the user cancelled (ctrl-c, ctrl-d).
        """
        value = b""
        while True:
            value += self._value_line(length - len(value))
            if len(value) == length:
                return value
            value += b"\n"
            if len(value) == length:
                return value
            if len(value) > length:
                raise TypedError(
                    f"{len(value) - 1:,} bytes instead of {length:,}; nothing was sent"
                )

    def skip(self, length: int | None) -> None:
        """Discard the rest of a paste after a rejected line: it may be the line's value."""
        self._pasted.clear()

    def password(self, user: str) -> bytes:
        """Prompt for a password without echoing it.

        Raises:
            TypedError: the user cancelled.
        """
        try:
            return getpass.getpass(f"Password for {user}: ").encode()
        except (EOFError, UnicodeError):
            raise TypedError("no password; nothing was sent") from None

    def _value_line(self, missing: int) -> bytes:
        if not self._pasted:
            try:
                typed = self._value_prompt.prompt(f"{missing:,} byte{'s' * (missing != 1)}> ")
            except (KeyboardInterrupt, EOFError):
                raise TypedError("no value; nothing was sent") from None
            self._pasted.extend(typed.split("\n"))
        return _encode(self._pasted.popleft())

    def _toolbar(self) -> StyleAndTextTuples:
        text = hint(self._line_prompt.default_buffer.text, self._session.dialect.commands)
        return [("", f" {text}" if text else " TAB completes, help lists commands")]


class _Completer(Completer):
    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        start = -len(before.rpartition(" ")[2])
        for one in candidates(before, self._commands):
            yield Completion(one.word, start, display=one.shown, display_meta=one.meaning)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
