"""``memlite shell``: the interactive client as a program."""

import contextlib
import getpass
import os
import shutil
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn

from memlite.client.login import TextLogin
from memlite.core import signals
from memlite.core.errors import ConfigError, StartError
from memlite.core.package_name import not_installed
from memlite.shell import live
from memlite.shell.dialects import DIALECTS
from memlite.shell.display import Display, Style
from memlite.shell.json_lines import JsonLines
from memlite.shell.link import Link, LinkError
from memlite.shell.options import PASSWORD_VARIABLE, Options, parse, password_from, tls_context
from memlite.shell.pretty import Pretty
from memlite.shell.raw import Raw
from memlite.shell.script import ScriptSource
from memlite.shell.session import Output, Session
from memlite.shell.typed import TypedError

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run the shell.

    Args:
        arguments: the command line after the subcommand's name.

    Returns:
        The exit code: 0; 1 if a command failed, except in an interactive session; 130 if
        interrupted.

    Raises:
        ConfigError: an argument is wrong.
        StartError: a package needed on a terminal is missing.
    """
    options = parse(arguments)
    if options is None:
        return 0
    signals.unblock()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # An exception, so that the terminal is restored.
    signal.signal(signal.SIGTERM, _exit)
    try:
        with _terminal_restored():
            return _run(options)
    except KeyboardInterrupt:
        return _INTERRUPTED


@contextlib.contextmanager
def _terminal_restored() -> Iterator[None]:
    # The prompts do so as well, unless a signal arrives while they change the settings.
    try:
        settings = termios.tcgetattr(0)
    except (OSError, termios.error):  # closed, or no terminal
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError, termios.error):  # the terminal is gone
            termios.tcsetattr(0, termios.TCSADRAIN, settings)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _run(options: Options) -> int:
    commands = bool(options.words or options.live)
    interactive = not commands and sys.stdin.isatty() and sys.stdout.isatty()
    prompt = _prompt() if interactive else None
    style = _style(sys.stdout.isatty())
    link = Link(
        options.address,
        timeout=options.timeout,
        value_length=options.value_length,
        tls=tls_context(options),
        server_name=options.sni,
        login=_login(options),
    )
    display = _display(options, style)
    session = Session(
        link,
        display,
        Output(sys.stdout.buffer, style),
        Output(sys.stderr.buffer, _style(sys.stderr.isatty())),
        DIALECTS[options.dialect],
    )
    source = ScriptSource(sys.stdin.buffer, options.value_length)
    with link:
        if options.live:
            _show_live(options, session, link)
        elif options.words:
            _one_command(options, session, source)
        elif prompt is not None:
            prompt(session)
            return 0
        else:
            session.run(source)
    return 1 if session.failed else 0


def _display(options: Options, style: Style) -> Display:
    if options.json:
        return JsonLines()
    return Raw(terminal=style.terminal) if options.raw else Pretty(style)


def _show_live(options: Options, session: Session, link: Link) -> None:
    show = live.latency if options.live == "latency" else live.statistics
    try:
        show(link, sys.stdout, options.repeat, options.interval)
    except LinkError as error:
        session.complain(str(error))


def _one_command(options: Options, session: Session, source: ScriptSource) -> None:
    words = [os.fsencode(word) for word in options.words]
    value = None
    try:
        if options.value_from_input:
            value = source.everything()
        typed = session.dialect.read_words(words, value)
        if typed is not None:
            for _ in live.rounds(options.repeat, options.interval):
                session.carry_out(typed, source.password)
    except TypedError as error:
        session.complain(str(error))


def _prompt() -> Callable[[Session], None]:
    try:
        from memlite.shell.prompt import run
    except ModuleNotFoundError as error:
        if (error.name or "memlite").partition(".")[0] == "memlite":
            raise
        what = not_installed(error, "shell")
        raise StartError(f"shell: {what}; commands from a pipe work without it") from None
    return run


def _style(terminal: bool) -> Style:
    dumb = os.environ.get("TERM", "") in ("", "dumb")
    return Style(
        terminal=terminal,
        colour=terminal and not dumb and not os.environ.get("NO_COLOR"),
        width=shutil.get_terminal_size().columns if terminal else 80,
    )


def _login(options: Options) -> TextLogin | None:
    if not options.user:
        return None
    password = password_from(options)
    if password is None:
        if not sys.stdin.isatty():
            raise ConfigError(
                f"shell: --user needs a password: --password-file or {PASSWORD_VARIABLE}"
            )
        try:
            password = getpass.getpass(f"Password for {options.user}: ").encode()
        except (EOFError, UnicodeError):
            raise ConfigError("shell: --user needs a password") from None
    return TextLogin(options.user.encode(), password)
