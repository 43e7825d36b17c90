"""``python -m memlite``, and the ``memlite`` command."""

from memlite import signals


def main() -> int:
    """Run the program, and return its exit code."""
    signals.hold()
    # Not above: what this imports takes a tenth of a second, in which a signal may come.
    from memlite import cli

    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())
