"""Listening sockets: parsing addresses, binding before the event loop starts, cleaning up."""

import errno
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from memlite.config import Config
from memlite.core.errors import ConfigError, StartError

if TYPE_CHECKING:
    from pathlib import Path  # imported lazily: servers without UNIX sockets start faster

__all__ = [
    "Listener",
    "is_loopback",
    "listen",
    "listen_http",
    "listen_tcp",
    "listen_udp",
    "listen_unix",
    "parse_address",
    "write_ports",
]

# None on Windows, which has no UNIX sockets; no address family equals None.
AF_UNIX: int | None = getattr(socket, "AF_UNIX", None)
_LOOPBACK = ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET6, ("::1", 0)))
PORT_FILE_VARIABLE = "MEMCACHED_PORT_FILENAME"

# The prefixes an address may have, and the resulting `Listener.tls`.
_TLS_PREFIXES = {"notls": "", "btls": "btls", "mtls": "mtls"}

_HTTP_BACKLOG = 64

# Errors of binding to an IPv6 address on a host without IPv6.
_UNSUPPORTED = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)

_log = logging.getLogger("memlite")


@dataclass(slots=True)
class Listener:
    """A bound socket that listens for connections or receives datagrams.

    Attributes:
        sock: the socket.
        label: ``tcp:HOST:PORT``, ``udp:HOST:PORT`` or ``unix:PATH``, as in ``stats conns``.
        tls: ``tls`` for TLS with the configured client authentication, ``btls`` for TLS without
            client certificates, ``mtls`` for TLS with required ones; empty without TLS.
        file: the absolute path of a UNIX socket, None once it is removed.
        inode: the device and inode number that identify the file.
        http: whether it is for HTTP (``--http``) rather than for clients of the cache.
    """

    sock: socket.socket
    label: str
    tls: str = ""
    file: "Path | None" = None
    inode: tuple[int, int] | None = None
    http: bool = False

    @property
    def port(self) -> int:
        """The TCP or UDP port; 0 for a UNIX socket."""
        return 0 if self.sock.family == AF_UNIX else int(self.sock.getsockname()[1])

    @property
    def udp(self) -> bool:
        """Whether it receives datagrams."""
        return self.sock.type == socket.SOCK_DGRAM

    def close(self) -> None:
        """Close the socket and remove a UNIX socket's file. Idempotent."""
        self.remove_file()
        self.sock.close()

    def remove_file(self) -> None:
        """Remove a UNIX socket's file, unless another server has since replaced it.

        Must be called before the socket is closed: until then its inode number cannot be reused.
        """
        file, self.file = self.file, None
        if file is not None:
            try:
                if _inode(file) == self.inode:
                    file.unlink()
            except FileNotFoundError:
                pass
            except OSError as error:
                _log.warning("-s: could not remove %s: %s", file, error.strerror)


def _inode(file: "Path") -> tuple[int, int]:
    status = file.lstat()
    return status.st_dev, status.st_ino


def address_label(family: int, name: object, protocol: str = "tcp") -> str:
    """Return a socket name in the format of ``stats conns``."""
    if family == AF_UNIX:
        return f"unix:{os.fsdecode(name) if isinstance(name, str | bytes) else ''}"
    if isinstance(name, tuple) and family == socket.AF_INET6:
        return f"{protocol}6:[{name[0]}]:{name[1]}"
    return f"{protocol}:{name[0]}:{name[1]}" if isinstance(name, tuple) else f"{protocol}:?"


def endpoint(family: int, name: object) -> tuple[str, int, str]:
    """Return a socket name in the format of ``watch connevents``: address, port, transport."""
    if family == AF_UNIX or not isinstance(name, tuple):
        return "unix", 0, "local"
    return str(name[0]), int(name[1]), "tcp"


def parse_address(text: str, default_port: int, option: str = "-l") -> tuple[str, int]:
    """Split ``host``, ``host:port``, ``[IPv6]``, ``[IPv6]:port`` or a bare IPv6 address.

    Args:
        text: the address.
        default_port: the port of an address without one.
        option: the name of the setting, for messages.

    Raises:
        ConfigError: it has none of these forms.
    """
    host, port = text, ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfigError(f"{option}: not an address: {text!r}")
        port = rest[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConfigError(f"{option}: not a port: {port!r} in {text!r}")
    if not host:
        raise ConfigError(f"{option}: no host in {text!r}")
    return ("" if host == "*" else host), int(port) if port else default_port


def _split_tls(text: str, enabled: bool, option: str = "-l") -> tuple[str, str]:
    """Split an address of ``-l`` into `Listener.tls` and the rest.

    Args:
        text: the address, with or without a prefix.
        enabled: whether TLS is enabled (``-Z``).
        option: the name of the setting, for messages.

    Raises:
        StartError: there is a prefix although TLS is not enabled.
    """
    prefix, colon, rest = text.partition(":")
    if not colon or prefix not in _TLS_PREFIXES:
        return "tls" if enabled else "", text
    if not enabled:
        raise StartError(f"{option}: {prefix!r} in {text!r} requires TLS (-Z)")
    return _TLS_PREFIXES[prefix], rest


def is_loopback(listener: Listener) -> bool:
    """Return whether only clients on this machine can reach the listener."""
    if listener.sock.family == AF_UNIX:
        return True
    host = str(listener.sock.getsockname()[0])
    return host == "::1" or host.startswith(("127.", "::ffff:127."))


def listen(config: Config) -> list[Listener]:
    """Bind the sockets named in the settings: TCP before UDP, and HTTP last.

    Raises:
        StartError: an address does not resolve, is in use, or is not permitted.
    """
    listeners = _listen_cache(config)
    if config.http is not None:
        try:
            listeners += listen_http(config.http, tls=config.enable_ssl)
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
    return listeners


def listen_http(text: str, *, tls: bool = False) -> list[Listener]:
    """Listen for HTTP.

    Args:
        text: a port, which stands for loopback, or an address in the forms of `parse_address` with
            a port; with `tls`, optionally prefixed as with `listen_tcp`.
        tls: whether TLS is enabled (``-Z``).

    Raises:
        ConfigError: it is not an address.
        StartError: it does not resolve, is in use, or is not permitted.
    """
    mode, address = _split_tls(text, tls, "--http")
    attempt = partial(_listen, backlog=_HTTP_BACKLOG)
    if address.isdigit():
        found = _listen_any(_LOOPBACK, int(address), "HTTP", attempt)
    else:
        host, port = parse_address(address, 0, "--http")
        found = _listen_host(host, port, "HTTP", attempt, "--http")
    return [
        replace(one, tls=mode, http=True, label=f"http{one.label.removeprefix('tcp')}")
        for one in found
    ]


def _listen_cache(config: Config) -> list[Listener]:
    if config.unix_socket:
        return [listen_unix(config.unix_socket, config.unix_mask, config.listen_backlog)]
    tls = config.enable_ssl
    listeners = listen_tcp(config.listen, config.port, config.listen_backlog, tls=tls)
    if config.udp_port:
        try:
            listeners += listen_udp(config.listen, config.udp_port, tls=tls)
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
    return listeners


def listen_tcp(
    addresses: Sequence[str], port: int, backlog: int, *, tls: bool = False
) -> list[Listener]:
    """Listen on each address, by default on the loopback addresses.

    Args:
        addresses: in the forms of `parse_address`; with `tls`, optionally prefixed with
            ``notls:``, ``btls:`` or ``mtls:``.
        port: the port for addresses without one; 0 or less for a free port.
        backlog: connections that may wait to be accepted.
        tls: whether TLS is enabled (``-Z``).

    Raises:
        StartError: an address does not resolve, is in use, or is not permitted.
    """
    return _listen_each(addresses, port, "TCP", partial(_listen, backlog=backlog), tls=tls)


def listen_udp(addresses: Sequence[str], port: int, *, tls: bool = False) -> list[Listener]:
    """Receive datagrams on each address, as `listen_tcp` does for connections.

    A port given in an address applies to UDP as well, as in memcached.

    Args:
        addresses: in the forms of `parse_address`.
        port: the port for addresses without one; less than 0 for a free port.
        tls: whether addresses may have TLS prefixes, which are ignored for UDP.

    Raises:
        StartError: an address does not resolve, is in use, or is not permitted.
    """
    found = _listen_each(addresses, port, "UDP", _bind_udp, tls=tls)
    return [replace(one, tls="") for one in found]


_Name = tuple[str | int, ...] | tuple[int, bytes]
_Listen = Callable[[int, _Name], Listener]


def _listen_each(
    addresses: Sequence[str], port: int, protocol: str, listen: _Listen, *, tls: bool
) -> list[Listener]:
    port = max(port, 0)
    listeners: list[Listener] = []
    try:
        if addresses:
            for text in dict.fromkeys(addresses):
                mode, address = _split_tls(text, tls)
                host, own_port = parse_address(address, port)
                found = _listen_host(host, own_port, protocol, listen)
                listeners += [replace(one, tls=mode) for one in found]
        else:
            found = _listen_any(_LOOPBACK, port, protocol, listen)
            listeners = [replace(one, tls="tls" if tls else "") for one in found]
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listen_host(
    host: str, port: int, protocol: str, listen: _Listen, option: str = "-l"
) -> list[Listener]:
    kind = socket.SOCK_DGRAM if protocol == "UDP" else socket.SOCK_STREAM
    try:
        found = socket.getaddrinfo(host or None, port, type=kind, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise StartError(f"{option}: cannot resolve {host!r}: {reason}") from None
    names = dict.fromkeys((family, name) for family, _, _, _, name in found)
    return _listen_any(names, port, protocol, listen)


def _listen_any(
    names: Iterable[tuple[int, _Name]], port: int, protocol: str, listen: _Listen
) -> list[Listener]:
    """Listen on the addresses that one name stands for; it is enough if one of them works.

    Args:
        names: address families and socket names.
        port: the port for all of them; 0 for the same free port for all.
        protocol: ``TCP``, ``UDP`` or ``HTTP``.
        listen: opens a listener.

    Raises:
        StartError: none of the addresses works.
    """
    listeners: list[Listener] = []
    failures: list[tuple[int | None, str]] = []
    for family, name in names:
        name = (name[0], port, *name[2:])
        try:
            listeners.append(listen(family, name))
        except OSError as error:
            where = f"{protocol} port {port} of {name[0]!s}"
            failures.append((error.errno, f"{where}: {os.strerror(error.errno or 0)}"))
        else:
            port = listeners[0].port
    if not listeners:
        raise StartError(f"failed to listen on {failures[0][1]}")
    for number, failure in failures:
        if number not in _UNSUPPORTED:
            _log.warning("not listening on %s", failure)
    return listeners


def _listen(family: int, name: _Name, backlog: int) -> Listener:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":
            # On Windows, SO_REUSEADDR would let a second server steal a running server's port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(name)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return Listener(sock, address_label(family, sock.getsockname()))


def _bind_udp(family: int, name: _Name) -> Listener:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        # No SO_REUSEADDR: a second server would silently steal the first one's datagrams.
        if sys.platform == "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(name)
    except BaseException:
        sock.close()
        raise
    return Listener(sock, address_label(family, sock.getsockname(), "udp"))


def listen_unix(path: str, mask: int, backlog: int) -> Listener:
    """Listen on a UNIX socket, replacing a stale one.

    Args:
        path: the socket's file.
        mask: its permissions, as for chmod (``-a``).
        backlog: connections that may wait to be accepted.

    Raises:
        StartError: the path is in use, or the socket cannot be created.
    """
    if AF_UNIX is None:
        raise StartError("-s: this system has no UNIX sockets")
    from pathlib import Path

    sock = socket.socket(AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        sock.setblocking(False)
        # The umask rather than a later chmod: the socket must never be open to other users.
        before = os.umask(~mask & 0o777)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        file = Path(path).absolute()
        inode = _inode(file)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StartError(f"failed to listen on UNIX socket {path}: {reason}") from None
    except StartError:
        sock.close()
        raise
    return Listener(sock, f"unix:{path}", file=file, inode=inode)


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(
            f"failed to listen on UNIX socket {path}: the file exists and is not a socket"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)  # a server too busy to accept is still a server
        try:
            probe.connect(path)
        except TimeoutError:
            pass
        except ConnectionRefusedError:
            os.unlink(path)  # noqa: PTH108 - as lstat above
            return
    raise StartError(
        f"failed to listen on UNIX socket {path}: another server is already listening there"
    )


def write_ports(listeners: Sequence[Listener]) -> None:
    """Write the ports to the file named by ``MEMCACHED_PORT_FILENAME``, if it is set.

    Test harnesses for memcached start it on a free port and read the port from that file.

    Raises:
        StartError: the file cannot be written.
    """
    path = os.environ.get(PORT_FILE_VARIABLE)
    if not path:
        return
    lines = [
        f"{'HTTP' if one.http else 'UDP' if one.udp else 'TCP'} "
        f"{'INET6' if one.sock.family == socket.AF_INET6 else 'INET'}: {one.port}\n"
        for one in listeners
        if one.port
    ]
    partial = path + ".lck"
    try:
        # Importing pathlib just for this would slow down startup.
        with open(partial, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.writelines(lines)
        os.rename(partial, path)  # noqa: PTH104 - so readers never see a partial file
    except OSError as error:
        raise StartError(f"{PORT_FILE_VARIABLE}: {path}: {error.strerror}") from None
