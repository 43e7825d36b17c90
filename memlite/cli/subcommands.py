"""The commands other than the server."""

from typing import NamedTuple

__all__ = ["SUBCOMMANDS", "Subcommand"]


class Subcommand(NamedTuple):
    """A command other than the server.

    Attributes:
        name: the first argument on the command line.
        help: a one-line description.
        module: the module with its ``main(arguments) -> int``; imported on use.
        extra: the extra of the distribution that provides its packages; empty for none.
    """

    name: str
    help: str
    module: str
    extra: str


SUBCOMMANDS = {
    subcommand.name: subcommand
    for subcommand in (
        Subcommand(
            "bench",
            "a load tester that compares backends and servers, with a report",
            "memlite.loadtest.program",
            "bench",
        ),
        Subcommand(
            "cluster",
            "inspects and manages clusters, and runs one to try on this machine",
            "memlite.cluster.command",
            "",
        ),
        Subcommand(
            "gcs-emulator",
            "a strict Google Cloud Storage emulator for tests and benchmarks",
            "memlite.testing.gcs_emulator.command",
            "gcs",
        ),
        Subcommand(
            "proxy",
            "forwards commands to the nodes that store their keys",
            "memlite.cli.proxy",
            "",
        ),
        Subcommand(
            "shell",
            "an interactive client for this and other memcached servers",
            "memlite.shell.command",
            "shell",
        ),
        Subcommand(
            "top",
            "shows live statistics of servers on a terminal",
            "memlite.top.command",
            "top",
        ),
    )
}
