"""Assembly of a server that is a node of a cluster."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from memlite.client import Address, parse_address
from memlite.client.address import PORT
from memlite.cluster.membership.config_command import ConfigCommand
from memlite.cluster.membership.connection import MemberConnection
from memlite.cluster.membership.lease import Lease
from memlite.cluster.membership.member import Identity
from memlite.cluster.membership.membership import Membership
from memlite.cluster.membership.url import store_of
from memlite.cluster.topology import DEFAULT_HASH, default_name
from memlite.config import Config
from memlite.core.errors import ConfigError
from memlite.engine.memory import MemoryEngine
from memlite.server.connections.listeners import Listener
from memlite.server.server import Server

if TYPE_CHECKING:
    from memlite.server.connections.tls import Tls

__all__ = ["NodeServer", "identity_of"]

_BACKENDS: Final = ("memory", "file")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - is refused


class NodeServer:
    """A server that joins a cluster when it serves, and leaves it before it stops.

    Args:
        config: the settings, with ``join``.
        listeners: bound sockets; none to only check the settings.
        tls: the TLS settings; None without TLS.

    Attributes:
        scheduler: the server's scheduler.

    Raises:
        ConfigError: a node cannot have these settings.
    """

    def __init__(
        self, config: Config, listeners: Sequence[Listener], tls: "Tls | None" = None
    ) -> None:
        _check(config)
        lease = Lease()
        self._server = Server(
            config, listeners, tls=tls, connection=partial(MemberConnection, lease)
        )
        if isinstance(self._server.engine, MemoryEngine):
            # A key may move here from a node with higher cas uniques, and a client may still hold
            # one of these. Microseconds since 1970 exceed any number that a node started earlier
            # can have reached, as no node carries out a million changes per second.
            self._server.engine.number_uniques_from(int(time.time() * 1e6))
        self.scheduler = self._server.scheduler
        store = store_of(str(config.join), "--join")
        self._membership = Membership(
            store, identity_of(config, listeners), lease, self._empty, spare=config.spare
        )

    async def run(self, ready: Callable[[], None], stopping: Callable[[], None]) -> None:
        """Serve until asked to stop; see `memlite.server.lifecycle.Lifecycle`.

        Raises:
            StartError: the node cannot join.
        """
        membership, lifecycle = self._membership, self._server.lifecycle

        def accepting() -> None:
            commands = self._server.admin.commands
            commands[b"config"] = ConfigCommand(lambda: membership.document, membership.hosts.ip)
            membership.start(lifecycle.request_stop)
            ready()

        try:
            await lifecycle.run(accepting, stopping, membership.leave)
        finally:
            await membership.close()
        if membership.failure is not None:
            raise membership.failure

    async def _empty(self) -> None:
        """Remove all items."""
        backend = self._server.backend
        if backend is not None:
            await backend.flush()
        else:
            self._server.engine.flush_all(0)


def _check(config: Config) -> None:
    """Reject settings with which a server cannot be a node.

    Raises:
        ConfigError: there are such settings.
    """
    if not config.join:
        flags = {"--name": config.name, "--advertise": config.advertise, "--spare": config.spare}
        flag = next(name for name, value in flags.items() if value)
        raise ConfigError(f"{flag}: applies only to nodes of a cluster; it requires --join")
    wrong = None
    if config.unix_socket:
        wrong = "other machines cannot reach a UNIX socket; leave out -s"
    elif config.udp_port:
        wrong = "a node does not serve UDP; leave out -U"
    elif config.backend.partition("://")[0] not in _BACKENDS:
        wrong = f"cannot be combined with {config.backend}, which nodes share without a cluster"
    if wrong:
        raise ConfigError(f"--join: {wrong}")


def identity_of(config: Config, listeners: Sequence[Listener]) -> Identity:
    """Return the name of a node, and the address where others reach it.

    Raises:
        ConfigError: the address is invalid, or the node listens everywhere and no address is given.
    """
    host, port = listeners[0].sock.getsockname()[:2] if listeners else ("localhost", PORT)
    if config.advertise is not None:
        address = _advertised(config.advertise, port)
    elif host in _EVERYWHERE:
        raise ConfigError(
            f"--advertise: required with -l {host}, which does not say where to reach this node"
        )
    else:
        address = Address(host, port)
    return Identity(config.name or default_name(address, DEFAULT_HASH), str(address))


def _advertised(text: str, port: int) -> Address:
    try:
        address = parse_address(text, default_port=port)
    except ConfigError as error:
        raise ConfigError(f"--advertise: {error}") from None
    if address.path:
        raise ConfigError(f"--advertise: must be HOST or HOST:PORT, not {text!r}")
    return address
