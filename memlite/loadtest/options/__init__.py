"""The command line of ``memlite bench``: a module for each command, and for each kind of option.

Callers need only `parse`. Options shared by several commands are in ``measurement`` and the modules
that it names: ``workload``, ``clients``, ``connection``, ``saturation`` and ``output``.
"""

from memlite.loadtest.options.command_line import command_line
from memlite.loadtest.options.connection import PASSWORD_VARIABLE
from memlite.loadtest.options.parsing import CompareOption, compare_options, parse

__all__ = ["PASSWORD_VARIABLE", "CompareOption", "command_line", "compare_options", "parse"]
