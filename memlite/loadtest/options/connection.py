"""Options about connections to running servers: user names, passwords and TLS."""

import argparse
from pathlib import Path

__all__ = ["PASSWORD_VARIABLE", "add_login", "add_tls"]

PASSWORD_VARIABLE = "MEMLITE_BENCH_PASSWORD"  # noqa: S105 - its name


def add_login(parser: argparse.ArgumentParser) -> None:
    """Add the group of options."""
    group = parser.add_argument_group("authentication, for running servers")
    group.add_argument("--user", metavar="NAME", help="user name")
    group.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"file whose first line is the password (default: ${PASSWORD_VARIABLE})",
    )


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Add the group of options."""
    add = parser.add_argument_group("TLS, for running servers").add_argument
    add("--tls", action="store_true", help="connect with TLS")
    add(
        "--tls-ca-cert",
        default="",
        metavar="FILE",
        help="PEM file of trusted CA certificates (default: the system's)",
    )
    add("--tls-cert", default="", metavar="FILE", help="PEM file with the client's certificate")
    add(
        "--tls-key",
        default="",
        metavar="FILE",
        help="PEM file with its private key (default: in --tls-cert)",
    )
    add("--tls-skip-verify", action="store_true", help="do not verify the server's certificate")
