"""The distribution's name on the package index, and the message for an extra that is missing."""

__all__ = ["DISTRIBUTION", "not_installed"]

# `memlite` on PyPI is an unrelated project; only the import name and the command are "memlite".
DISTRIBUTION = "memlite-cache"


def not_installed(error: ModuleNotFoundError, extra: str) -> str:
    """Return the message for a failed import of a package that an extra provides.

    Args:
        error: raised by the import.
        extra: the extra of this distribution that installs the package.

    Returns:
        The package's name and the command that installs it, in one line.

    Raises:
        ModuleNotFoundError: `error` itself, if one of memlite's own modules is missing: installing
            an extra would not help.
    """
    name = error.name or "memlite"
    if name.partition(".")[0] == "memlite":
        raise error
    return f"{name} is not installed: pip install '{DISTRIBUTION}[{extra}]'"
