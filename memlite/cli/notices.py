"""Log messages about settings that have no effect, and settings that expose the cache."""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from memlite.config import EXTENDED, OPTIONS, Config, Settings
from memlite.config.service_links import is_service_link
from memlite.core import logs
from memlite.server.connections.listeners import Listener, is_loopback

if TYPE_CHECKING:
    from memlite.server.connections.tls import Tls

__all__ = ["announce", "report_ignored", "warn_of_exposure"]

_log = logging.getLogger("memlite")


def report_ignored(settings: Settings, environment: Mapping[str, str]) -> None:
    """Log the settings that were given but have no effect.

    Args:
        settings: the settings.
        environment: environment variables by name.
    """
    port = environment.get("MEMLITE_PORT", "")
    if is_service_link("MEMLITE_PORT", port):
        _log.warning(
            "MEMLITE_PORT=%s describes a Kubernetes Service and is ignored; set the port with -p",
            port,
        )
    config, sources = settings.config, settings.sources
    for option in OPTIONS:
        if not option.effect and sources[option.name] != "default":
            _log.info("%s: has no effect in memlite", sources[option.name])
    if config.unix_socket is not None:
        if sources["port"] != "default":
            _log.info("%s: has no effect with -s", sources["port"])
        if config.udp_port:
            _log.info("%s: has no effect with -s", sources["udp-port"])
        if config.enable_ssl:
            _log.info("%s: has no effect with -s", sources["enable-ssl"])
    elif sources["unix-mask"] != "default":
        _log.info("%s: has no effect without -s", sources["unix-mask"])
    for key in config.extended.given:
        if not EXTENDED[key].help:
            _log.info("-o %s: has no effect in memlite", key)
        elif key.startswith("ssl_") and not config.enable_ssl:
            _log.info("-o %s: has no effect without -Z", key)


def announce(text: str) -> None:
    """Tell a user at a terminal (but not a log file) what the server does and how to stop it."""
    if sys.stderr.isatty() and not logs.is_json():
        sys.stderr.write(f"memlite: {text}; press Ctrl+C to stop\n")


def _warn_of_http(listener: Listener, config: Config) -> None:
    where = listener.label.partition(":")[2]
    if is_loopback(listener):
        return
    if config.http_token_file is None:
        _log.warning(
            "--http: serving %s without a token: anyone who can reach it can read the metrics "
            "(--http-token-file)",
            where,
        )
    elif not listener.tls:
        _log.warning("--http: serving %s without TLS (-Z): the token can be intercepted", where)


def warn_of_exposure(listeners: Sequence[Listener], tls: "Tls | None", config: Config) -> None:
    """Warn of listeners that strangers can use, and of listeners that no client can use.

    Args:
        listeners: the open sockets.
        tls: None without -Z.
        config: the server's settings.
    """
    if tls is not None and any(listener.udp for listener in listeners):
        _log.warning("-U: datagrams are not encrypted, even with -Z")
    for listener in listeners:
        if listener.http:
            _warn_of_http(listener, config)
            continue
        where = listener.label.partition(":")[2]
        if tls is not None and tls.requires_certificate(listener.tls):
            if not tls.has_ca:
                _log.warning("no client can connect to %s without -o ssl_ca_cert", where)
        elif is_loopback(listener):
            continue
        elif not config.asks_for_password:
            _log.warning(
                "listening on %s%s without authentication: anyone who can reach it can read and "
                "change the cache%s",
                where,
                " (UDP)" if listener.udp else "",
                # A 15-byte request with a forged source address is answered with a megabyte.
                ", and use it to flood others with replies" if listener.udp else "",
            )
        elif not listener.tls:
            _log.warning("listening on %s without TLS (-Z): passwords can be intercepted", where)
