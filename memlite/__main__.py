"""``python -m memlite``, and the ``memlite`` command."""

from memlite.core import signals


def main() -> int:
    """Run the program, and return its exit code."""
    signals.block()
    # Imported here: it takes a tenth of a second, in which a signal may arrive.
    from memlite.cli import main as cli

    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())
