"""Passwords and TLS for nodes: the options, and connections that use them."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memlite.client.credentials import read_login, read_tls
from memlite.client.tls import TlsSettings

if TYPE_CHECKING:
    import ssl

    from memlite.client import Connection
    from memlite.client.address import Address
    from memlite.client.login import TextLogin

__all__ = ["NodeAccess", "add_node_access", "node_access"]

PASSWORD_VARIABLE: Final = "MEMLITE_NODE_PASSWORD"  # noqa: S105 - its name

_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """How to connect to nodes.

    Attributes:
        tls: encrypts connections; None for plain text.
        login: carried out first; None for none.
    """

    tls: "ssl.SSLContext | None" = None
    login: "TextLogin | None" = None

    async def connect(self, address: "Address", timeout: float = _PATIENCE) -> "Connection":  # noqa: ASYNC109 - the connection's, too
        """Connect to a node; see `memlite.client.connect`.

        Raises:
            OSError: the connection failed, or the node does not accept the login.
            TimeoutError: it took too long.
        """
        from memlite.client import connect  # needs asyncio, which parsing options does not

        return await connect(address, tls=self.tls, login=self.login, timeout=timeout)


def add_node_access(parser: argparse.ArgumentParser) -> None:
    """Add ``--node-user``, ``--node-password-file``, ``--node-tls`` and related options."""
    add = parser.add_argument_group("passwords and TLS of the nodes").add_argument
    add("--node-user", metavar="NAME", help="user name (memcached -Y)")
    add(
        "--node-password-file",
        type=Path,
        metavar="FILE",
        help=f"file whose first line is the password (default: ${PASSWORD_VARIABLE})",
    )
    add("--node-tls", action="store_true", help="connect with TLS")
    add(
        "--node-tls-ca-cert",
        default="",
        metavar="FILE",
        help="PEM file of trusted CA certificates (default: the system's)",
    )
    add("--node-tls-cert", default="", metavar="FILE", help="PEM file with a client certificate")
    add(
        "--node-tls-key",
        default="",
        metavar="FILE",
        help="PEM file with its private key (default: in --node-tls-cert)",
    )
    add("--node-tls-skip-verify", action="store_true", help="do not verify nodes' certificates")


def node_access(command: str, options: argparse.Namespace) -> NodeAccess:
    """Return the access that the options describe.

    Args:
        command: the name of the command, for messages.
        options: the options of `add_node_access`.

    Raises:
        ConfigError: an option is wrong, or a file cannot be used.
    """
    prefix = f"{command}: --node-"
    login = read_login(
        prefix, options.node_user, options.node_password_file, PASSWORD_VARIABLE, os.environ
    )
    files = (options.node_tls_ca_cert, options.node_tls_cert, options.node_tls_key)
    settings = TlsSettings(*files, verify=not options.node_tls_skip_verify)
    tls = read_tls(prefix, options.node_tls, settings)
    return NodeAccess(None if tls is None else tls.context(), login)
