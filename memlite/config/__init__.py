"""Settings: flags, environment variables and the TOML file."""

__all__ = [
    "EXTENDED",
    "MEGABYTE",
    "OPTIONS",
    "REFUSED",
    "Config",
    "ExtendedOption",
    "ExtendedOptions",
    "Option",
    "Settings",
    "load",
]

from memlite.config.extended import EXTENDED, ExtendedOption, ExtendedOptions
from memlite.config.options import OPTIONS, REFUSED, Option
from memlite.config.parsers import MEGABYTE
from memlite.config.settings import Config, Settings
from memlite.config.sources import load
