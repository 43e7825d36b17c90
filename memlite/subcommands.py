"""The programs beside the server."""

from typing import NamedTuple

__all__ = ["SUBCOMMANDS", "Subcommand"]


class Subcommand(NamedTuple):
    """A program beside the server.

    Attributes:
        name: the first argument that calls for it.
        help: what it does, in a line.
        module: where its ``main(arguments) -> int`` is; imported when it is called for.
        extra: of memlite's extras the one with the packages it needs.
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
            "a load tester: compares backends and servers, with a report",
            "memlite.loadtest.command",
            "bench",
        ),
        Subcommand(
            "gcs-emulator",
            "a strict Google Cloud Storage emulator for tests and benchmarks",
            "memlite.testing.gcs_emulator.command",
            "gcs",
        ),
        Subcommand(
            "shell",
            "an interactive client for this and other memcached servers",
            "memlite.shell.command",
            "shell",
        ),
    )
}
