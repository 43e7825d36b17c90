"""The ``memlite bench`` program; its help works without the packages needed for measuring."""

from collections.abc import Sequence

from memlite.loadtest.options import parse

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the load tester.

    Args:
        arguments: the command-line arguments after the subcommand's name.

    Returns:
        The exit code: 0 on success, 1 if requests failed or values were wrong, 130 if interrupted.

    Raises:
        ConfigError: an argument, a workload or a file is invalid.
        StartError: a target cannot be started or reached, or results cannot be saved.
        ModuleNotFoundError: a package is missing.
    """
    options = parse(arguments)
    if options is None:
        return 0
    if options.command == "launcher":
        from memlite.loadtest.remote.launcher import serve

        return serve()
    from memlite.loadtest.command import carry_out

    return carry_out(options, arguments)
