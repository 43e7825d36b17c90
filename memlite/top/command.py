"""``memlite top`` as a program."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from memlite.client.connection import connect
from memlite.client.credentials import read_login, read_tls
from memlite.client.tls import TlsSettings
from memlite.core import signals
from memlite.top.options import PASSWORD_VARIABLE, Options, parse
from memlite.top.report import as_json
from memlite.top.servers import Opener, Servers

__all__ = ["main"]

_PREFIX: Final = "top: --"
_REPLY_BYTES: Final = 1024 * 1024


def main(arguments: Sequence[str]) -> int:
    """Show the activity of servers.

    Args:
        arguments: the command line after the subcommand's name.

    Returns:
        The exit code: 0; 1 if one table was asked for, and no server answered.

    Raises:
        ConfigError: an argument is invalid.
    """
    options = parse(arguments)
    if options is None:
        return 0
    opener = _opener(options)
    from rich.console import Console  # only once the arguments are known to be valid

    console = Console(highlight=False)
    signals.unblock()
    return asyncio.run(_run(options, opener, console.is_terminal and sys.stdin.isatty()))


async def _run(options: Options, opener: Opener, interactive: bool) -> int:
    from rich.console import Console

    from memlite.top import screen

    console = Console(highlight=False)
    servers = Servers(
        options.addresses, opener, discovers=options.discovers, timeout=options.timeout
    )
    _end_by_signals()
    try:
        if interactive and not options.once:
            await screen.watch(servers, console, options.interval)
            return 0
        if options.json:
            await servers.read_twice(options.interval)
            sys.stdout.write(json.dumps(as_json(servers.rows())) + "\n")
        else:
            await screen.show_once(servers, console, options.interval)
        return 0 if any(not row.trouble for row in servers.rows()) else 1
    except asyncio.CancelledError:  # by a signal
        return 0
    finally:
        servers.close()


def _end_by_signals() -> None:
    """End the program on SIGINT, SIGTERM and SIGHUP like ``q`` does, restoring the terminal."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)


def _opener(options: Options) -> Opener:
    """Return the function that opens connections.

    Raises:
        ConfigError: an option for passwords or TLS is invalid.
    """
    parsed = options.parsed
    login = read_login(_PREFIX, parsed.user, parsed.password_file, PASSWORD_VARIABLE, os.environ)
    files = (parsed.tls_ca_cert, parsed.tls_cert, parsed.tls_key)
    settings = TlsSettings(*files, verify=not parsed.tls_skip_verify)
    tls = read_tls(_PREFIX, parsed.tls, settings)
    context = None if tls is None else tls.context()
    return partial(
        connect,
        tls=context,
        login=login,
        timeout=options.timeout,
        line_length=_REPLY_BYTES,
        value_length=_REPLY_BYTES,
        reply_length=_REPLY_BYTES,
    )
