"""``python -m memlite``."""

from memlite.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
