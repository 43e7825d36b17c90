"""The command line: settings in, a running server or one line of error out."""

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memlite import __version__, logs, signals
from memlite.config import OPTIONS, Config, Settings, load
from memlite.errors import ConfigError, StartError
from memlite.extended import EXTENDED
from memlite.server import process
from memlite.subcommands import SUBCOMMANDS, Subcommand

if TYPE_CHECKING:
    import asyncio

    from memlite.server.sockets import Listener
    from memlite.server.tls import Tls

__all__ = ["main"]

_log = logging.getLogger("memlite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: the command line without the program's name; default, the process's.

    Returns:
        The exit code: 0, 64 for wrong settings, 71 when the server cannot start.
    """
    process.open_standard_streams()
    try:
        arguments = list(sys.argv[1:] if arguments is None else arguments)
        if arguments and arguments[0] in SUBCOMMANDS:
            return _run_subcommand(SUBCOMMANDS[arguments[0]], arguments[1:])
        settings = load(arguments, os.environ)
        if settings.actions:
            from memlite.texts import answer  # not above: a server has no use for it

            sys.stdout.write(answer(settings))
            sys.stdout.flush()
            return 0
        return _serve(settings)
    except (ConfigError, StartError) as error:
        line = " ".join(str(error).splitlines())
        sys.stderr.write(f"memlite: {line}\n")
        return error.exit_code
    except KeyboardInterrupt:  # only where signals cannot be held, see memlite.signals
        return 0
    except BrokenPipeError:
        # The reader of --help went away; the interpreter must not complain at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run_subcommand(subcommand: Subcommand, arguments: Sequence[str]) -> int:
    try:
        module = importlib.import_module(subcommand.module)
    except ModuleNotFoundError as error:
        if (error.name or "memlite").partition(".")[0] == "memlite":
            raise
        raise StartError(
            f"{subcommand.name}: {error.name} is not installed: "
            f"pip install 'memlite[{subcommand.extra}]'"
        ) from None
    exit_code: int = module.main(arguments)
    return exit_code


def _serve(settings: Settings) -> int:
    # Imported here: --help and a typo need not wait for the event loop's modules.
    import asyncio

    from memlite.protocol.build import running_build
    from memlite.server import sockets
    from memlite.server.allocator import tune_allocator
    from memlite.server.collector import tune_collector
    from memlite.server.server import Server
    from memlite.server.service import ServiceManager

    config = settings.config
    logs.configure(logs.level_for(config.verbose, config.log_level), config.log_format)
    _log.info("memlite %s (%s)", __version__, running_build())
    manager = ServiceManager(os.environ)
    _say_what_has_no_effect(settings)
    process.raise_file_limit(config.conn_limit)
    if config.enable_coredumps:
        process.allow_coredumps()
    # Before anybody can connect: those who could would be let down if it failed.
    tls = _tls(config) if config.enable_ssl else None
    if config.unix_socket:
        listeners = [
            sockets.listen_unix(config.unix_socket, config.unix_mask, config.listen_backlog)
        ]
    else:
        listeners = sockets.listen_tcp(
            config.listen, config.port, config.listen_backlog, tls=config.enable_ssl
        )
    try:
        if config.udp_port and not config.unix_socket:
            listeners += sockets.listen_udp(config.listen, config.udp_port, tls=config.enable_ssl)
        _say_who_can_connect(listeners, tls, config)
        # Before the user and the directory change: the new one may not be allowed to read Python's
        # files, and paths may be relative.
        server = Server(config, listeners, tls=tls)
        loop_factory = _loop_factory(config.loop)
        tune_allocator()
        if config.user:
            from memlite.server import on_demand

            on_demand.import_all()
        process.become(config.user, [one.file for one in listeners if one.file])
        leave_terminal = (
            process.daemonize(keep_streams=config.verbose > 0) if config.daemon else None
        )
        if config.lock_memory:
            process.lock_memory()

        def ready() -> None:
            if leave_terminal is not None:
                leave_terminal()
            where = ", ".join(listener.label for listener in listeners)
            manager.ready(server.loop, f"Serving {config.backend} on {where}")
            signals.release()

        async def run() -> None:
            tune_collector(leaves_rings=loop_factory is None)
            try:
                await server.run(ready, manager.stopping)
            finally:
                signals.hold()  # until the process ends: there is nothing left to stop

        with process.pid_file(config.pidfile):
            sockets.write_ports(listeners)
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(run())
    finally:
        for listener in listeners:
            listener.close()
    return 0


def _tls(config: Config) -> "Tls":
    from memlite.server.tls import Tls  # not above: who does not ask for it need not wait for it

    return Tls(config.extended)


def _say_who_can_connect(
    listeners: "Sequence[Listener]", tls: "Tls | None", config: Config
) -> None:
    from memlite.server.sockets import is_loopback

    if tls is not None and any(listener.udp for listener in listeners):
        _log.warning("-U: datagrams are not encrypted, whatever -Z says")
    for listener in listeners:
        where = listener.label.partition(":")[2]
        if tls is not None and tls.requires_certificate(listener.tls):
            if not tls.has_ca:
                _log.warning("nobody can connect to %s without -o ssl_ca_cert", where)
        elif is_loopback(listener):
            continue
        elif not config.asks_for_password:
            _warn_of_strangers(listener)
        elif not listener.tls:
            _log.warning(
                "listening on %s without TLS (-Z): passwords can be read on the way", where
            )


def _warn_of_strangers(listener: "Listener") -> None:
    _log.warning(
        "listening on %s%s without authentication: whoever can reach it can read and change the "
        "cache%s",
        listener.label.partition(":")[2],
        " (UDP)" if listener.udp else "",
        # A request of 15 bytes is answered with a megabyte, and nothing tells who sent it.
        ", and have others flooded, by requests in their name" if listener.udp else "",
    )


def _loop_factory(choice: str) -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """Return what makes the event loop of ``--loop``; None for asyncio's own."""
    if choice == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if choice == "uvloop":
            raise StartError("--loop: uvloop is not installed") from None
        _log.info("uvloop is not installed; serving on asyncio's own loop")
        return None
    return uvloop.new_event_loop


def _say_what_has_no_effect(settings: Settings) -> None:
    for option in OPTIONS:
        if not option.effect and settings.sources[option.name] != "default":
            _log.info("%s: has no effect in memlite", settings.sources[option.name])
    on_unix_socket = settings.config.unix_socket is not None
    if on_unix_socket and settings.sources["port"] != "default":
        _log.info("%s: has no effect with -s", settings.sources["port"])
    if on_unix_socket and settings.config.udp_port:
        _log.info("%s: has no effect with -s", settings.sources["udp-port"])
    if not on_unix_socket and settings.sources["unix-mask"] != "default":
        _log.info("%s: has no effect without -s", settings.sources["unix-mask"])
    if on_unix_socket and settings.config.enable_ssl:
        _log.info("%s: has no effect with -s", settings.sources["enable-ssl"])
    for key in settings.config.extended.given:
        if not EXTENDED[key].help:
            _log.info("-o %s: has no effect in memlite", key)
        elif key.startswith("ssl_") and not settings.config.enable_ssl:
            _log.info("-o %s: has no effect without -Z", key)
