"""Carries out ``memlite bench models``."""

import argparse
from typing import TextIO

from memlite.loadtest.files import load
from memlite.loadtest.models.output import print_models
from memlite.loadtest.models.study import model_targets
from memlite.loadtest.planning import prepare

__all__ = ["show_models"]


def show_models(options: argparse.Namespace, out: TextIO) -> int:
    """Model saved results, print how well the models hold, and write the page.

    Args:
        options: the results, traces, number of servers and output directory.
        out: receives the tables.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: a file cannot be read, or has nothing to model.
        StartError: the output directory is not writable.
    """
    results = load(options.results)
    found = model_targets(results, options.trace, options.servers)
    folder = options.out or (
        options.results if options.results.is_dir() else options.results.parent
    )
    prepare(folder)
    print_models(found, out)
    # Imported here: the plotting libraries take a second to import.
    from memlite.loadtest.models.page import write_models

    out.write(f"report: {write_models(results, found, folder)}\n")
    return 0
