"""The entry point: reads the settings and starts the server, or runs another command."""

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from memlite.cli.subcommands import SUBCOMMANDS, Subcommand
from memlite.config import Settings, load
from memlite.core.errors import ConfigError, StartError
from memlite.server import process

__all__ = ["main"]

_MAX_MESSAGE_LENGTH = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: the command line without the program's name; by default, that of the process.

    Returns:
        The exit code: 0, 64 for invalid settings, 71 if the server cannot start.
    """
    process.open_standard_streams()
    try:
        arguments = list(sys.argv[1:] if arguments is None else arguments)
        if arguments and arguments[0] in SUBCOMMANDS:
            return _run_subcommand(SUBCOMMANDS[arguments[0]], arguments[1:])
        settings = load(arguments, os.environ)
        return _print_answer(settings) if settings.actions else _serve(settings)
    except (ConfigError, StartError) as error:
        _say_why(error, arguments or ())
        return error.exit_code
    except KeyboardInterrupt:  # only where signals cannot be held, see memlite.core.signals
        return 0
    except BrokenPipeError:
        # The reader of --help went away. Python would fail again when it flushes stdout at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _say_why(error: ConfigError | StartError, arguments: Sequence[str]) -> None:
    """Write why the program ends, in the format of the log."""
    from memlite.core import logs  # a server imports it when it starts

    json = logs.is_json()
    if json is None:
        from memlite.config.log_format import asks_for_json

        is_proxy = list(arguments[:1]) == ["proxy"]  # the proxy reads no variables
        is_server = not arguments or arguments[0] not in SUBCOMMANDS
        json = (is_proxy or is_server) and asks_for_json(arguments, os.environ if is_server else {})
    logs.write_end(_one_line(str(error)), error.exit_code, json=json)


def _one_line(text: str) -> str:
    """Return a message as one line, omitting the middle if it repeats a very long argument."""
    line = " ".join(text.splitlines())
    if len(line) <= _MAX_MESSAGE_LENGTH:
        return line
    half = _MAX_MESSAGE_LENGTH // 2
    return f"{line[:half]} … {line[-half:]}"


def _run_subcommand(subcommand: Subcommand, arguments: Sequence[str]) -> int:
    try:
        module = importlib.import_module(subcommand.module)
        exit_code: int = module.main(arguments)
    except ModuleNotFoundError as error:
        from memlite.core.package_name import not_installed  # only needed for this message

        what = not_installed(error, subcommand.extra)
        raise StartError(f"{subcommand.name}: {what}") from None
    return exit_code


def _print_answer(settings: Settings) -> int:
    from memlite.cli.help import answer  # a server does not need it

    sys.stdout.write(answer(settings))
    sys.stdout.flush()
    return 0


def _serve(settings: Settings) -> int:
    from memlite.cli.serve import serve  # --help and typos do not wait for asyncio

    return serve(settings)
