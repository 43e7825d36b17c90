"""Write docs/reference/cli.md from the table of options. ``--check`` only says whether it is new.

Run it after changing an option: ``.venv/bin/python scripts/write_cli_reference.py``.
"""

import sys
from pathlib import Path

from memlite.config import OPTIONS, REFUSED, Config, Option
from memlite.extended import EXTENDED

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"

HEAD = """\
# Command line, environment and file

<!-- Written by scripts/write_cli_reference.py from memlite/config.py; change it there. -->

`memlite [options]`, or `python -m memlite [options]`. The letters and their meanings are
memcached's; every option has a long form, an environment variable and a key for the TOML file
that `--config FILE` (or `MEMLITE_CONFIG`) names. Flags go before environment, environment before
file, file before default; `-o` so key by key. `--print-config` prints the outcome, as a TOML file
that says where each value came from, and exits.

Whatever is wrong (an unknown flag, variable or key, a value out of range, a port in use) is one
line on stderr and a non-zero exit: 64 for settings, 71 when the server cannot start.

One default differs from memcached's: without `-l` memlite listens on this machine only
(127.0.0.1, and ::1 where there is IPv6). When told to listen on more without
[passwords](../how-to/require-passwords.md), it says so.

| flag | variable | default | meaning |
| --- | --- | --- | --- |
"""

FILE = """
`-h`/`--help`, `-V`/`--version`, `-i`/`--license`, `--print-config` print and exit.

## In a file

Keys are the long names, with `-` or `_`. Switches take `true` or `false`; `listen` takes a list;
`extended` a table or the flag's text; `unix-mask` a string.

```toml
port = 11211
memory-limit = 1024
listen = ["127.0.0.1", "[::1]:11311"]
disable-flush-all = true

[extended]
idle_timeout = 600
```
"""

EXTENDED_HEAD = """
## Extended options (`-o key=value,…`)

| key | meaning |
| --- | --- |
"""

SIGNALS = """
## Signals and files

| | |
| --- | --- |
| SIGINT, SIGTERM | stop: replies that are under way go out (1 s at most), then exit with 0 |
| SIGUSR1 | stop gracefully: commands that have begun to arrive may finish (10 s at most) |
| SIGHUP | read the users file (`-Y`) and certificates and key (`-Z`) again; connections stay open |
| a second of these three | stop at once |
| any of them while memlite starts | as soon as it has started |
| `MEMCACHED_SASL_PWDB` | with `-S`: names the users file, where `-Y` does not |
| `MEMCACHED_PORT_FILENAME` | names a file that gets the open ports, a line `TCP INET: 11211` each |

With `-p 0` and that variable, test harnesses written for memcached start memlite on a free port.
"""


def page() -> str:
    """Return the page's text."""
    defaults = Config()
    rows = [_row(option, defaults) for option in OPTIONS]
    extended = [f"| `{key}` | {option.help} |" for key, option in EXTENDED.items() if option.help]
    idle = ", ".join(f"`{key}`" for key, option in EXTENDED.items() if not option.help)
    refused = ", ".join(
        f"`-{letter}`/`--{name}` ({what})" for letter, (name, what) in REFUSED.items()
    )
    return "".join(
        (
            HEAD,
            "\n".join(rows),
            "\n",
            FILE,
            EXTENDED_HEAD,
            "\n".join(extended),
            "\n\nAccepted for scripts written for memcached, without effect (`-v` says so): ",
            f"{idle}.\n",
            "\n## Refused\n\nmemcached has these and this version of memlite has not; to start ",
            "without what they promise would be worse than not to start: ",
            f"{refused}, and of `-o` all `ext_…` and `proxy_…` keys.\n",
            SIGNALS,
        )
    )


def _row(option: Option, defaults: Config) -> str:
    value = f" {option.metavar}" if option.metavar else ""
    flags = f"`--{option.name}{value}`"
    if option.short:
        flags = f"`-{option.short}{value}`<br>{flags}"
    meaning = option.help + ("" if option.effect else " (no effect)")
    return f"| {flags} | `{option.variable}` | {_default(option, defaults)} | {meaning} |"


def _default(option: Option, defaults: Config) -> str:
    value = getattr(defaults, option.field)
    if option.name == "unix-mask":
        return f"{value:o}"
    if value in (None, (), "") or option.name == "extended":
        return "–"
    if option.metavar is None:
        return "–" if option.repeated else "off"
    return str(value)


def main() -> int:
    """Write the page, or with ``--check`` compare it."""
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
