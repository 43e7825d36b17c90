"""Write docs/reference/cli.md from the options in the code; ``--check`` only compares it.

Run it after changing an option: ``.venv/bin/python scripts/docs/write_cli_reference.py``.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from command_lines import Command, Flag, commands

from memlite.config import EXTENDED, OPTIONS, REFUSED, Config, Option

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

HEAD = """\
# Command line, environment and file

<!-- Written by scripts/docs/write_cli_reference.py from the code: edit those. -->

`memlite [options]`, or `python -m memlite [options]`, runs a server. There are
[other commands](#other-commands): `memlite bench`, `cluster`, `gcs-emulator`, `proxy` and
`shell`.

The letters have the same meaning as in memcached. Every option also has a long form, an
environment variable and a key in the TOML file that `--config FILE` (or `MEMLITE_CONFIG`) names.
Flags override the environment, the environment overrides the file, and the file overrides the
defaults; `-o` is merged key by key. `--print-config` prints the resulting settings as a TOML file,
with the source of each value, and exits.

Any error (an unknown flag, variable or key, a value out of range, a port in use) is reported in
one line on stderr, with a non-zero exit code: 64 for settings, 71 if the server cannot start.

One default differs from memcached's: without `-l` memlite listens on the loopback interface only
(127.0.0.1, and ::1 if there is IPv6). If it listens on other addresses without
[passwords](../how-to/require-passwords.md), it logs a warning.

If a host name in `-l`, or the default, resolves to several addresses, one that is free is enough;
memlite logs a warning about those that are in use. Addresses that are given individually must all
be free, as with memcached. With `-p -1`, memlite uses the same free port for all addresses of a
name.

In Kubernetes a Service called `memlite` sets variables such as `MEMLITE_SERVICE_HOST` and
`MEMLITE_PORT=tcp://10.0.0.1:11211` in each pod. These are not settings: memlite ignores
them, and logs a warning about `MEMLITE_PORT`. `enableServiceLinks: false` in the pod's
specification avoids them.

The package includes a man page and completion for bash, zsh and fish, in `share/` of the directory
that it is installed in, such as `/usr/local`. In a virtual environment, enable them with
`man .venv/share/man/man1/memlite.1`, `source .venv/share/bash-completion/completions/memlite`,
`fpath=(.venv/share/zsh/site-functions $fpath)` before `compinit`, or
`source .venv/share/fish/vendor_completions.d/memlite.fish`.

| flag | variable | default | meaning |
| --- | --- | --- | --- |
"""

FILE = """
`-h`/`--help`, `-V`/`--version`, `-i`/`--license` and `--print-config` print something and exit.

## Settings file

Keys are the long names, with `-` or `_`. Switches take `true` or `false`, `listen` takes a list,
`extended` a table or the text of the flag, and `unix-mask` a string.

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
| SIGINT, SIGTERM | stop: send pending replies (up to 1 s), wait for the store (5 s), exit with 0 |
| SIGUSR1 | stop gracefully: commands that have begun to arrive may finish (for at most 10 s) |
| SIGHUP | reload the users file (`-Y`), certificates and key (`-Z`); connections stay open |
| a second SIGINT, SIGTERM or SIGUSR1 | stop at once |
| any of them during start-up | takes effect once memlite has started |
| `MEMCACHED_SASL_PWDB` | with `-S` and without `-Y`: the path of the users file |
| `MEMCACHED_PORT_FILENAME` | path of a file that lists the open ports, such as `TCP INET: 11211` |

With `-p 0` and `MEMCACHED_PORT_FILENAME`, test harnesses written for memcached can start memlite on
a free port.
"""


OTHERS = """
## Other commands

They have no settings file, and no environment variables except those for passwords,
`MEMLITE_BENCH_PASSWORD`, `MEMLITE_SHELL_PASSWORD` and `MEMLITE_TOP_PASSWORD`. `bench`,
`gcs-emulator` and `top` need an extra of the distribution, such as
`pip install 'memlite-cache[bench]'`; `shell` needs one only for its prompt. Other pages
describe their use: [the load tester](../compare-backends.md),
[the shell](../how-to/use-the-shell.md), [the emulator](gcs-emulator.md),
[`top`](../how-to/watch-a-server.md#watch-it-in-a-terminal).
`--help` after a command prints the options that are listed here.
"""


def page() -> str:
    """Return the text of the page."""
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
            "\n\nAccepted for compatibility with memcached, without effect (reported with `-v`): ",
            f"{idle}.\n",
            "\n## Rejected options\n\nThis version of memlite does not support these options of ",
            "memcached. They are an error, because a server that ignored them would not ",
            f"behave as requested: {refused}, and all `ext_…` and `proxy_…` keys of `-o`.\n",
            SIGNALS,
            OTHERS,
            *_others(),
        )
    )


def _row(option: Option, defaults: Config) -> str:
    value = f" {option.metavar}" if option.metavar else ""
    flags = f"`--{option.name}{value}`"
    if option.short:
        flags = f"`-{option.short}{value}`<br>{flags}"
    meaning = option.help + ("" if option.effect else " (no effect)")
    return f"| {flags} | `{option.variable}` | {_default(option, defaults)} | {meaning} |"


def _others() -> Iterator[str]:
    listed: dict[Flag, str] = {}
    for command in commands():
        if command.words:
            yield _other(command, listed)


def _other(command: Command, listed: dict[Flag, str]) -> str:
    name = " ".join(("memlite", *command.words))
    usage = f"{name} [options] {command.arguments}".rstrip()
    flags = [flag for flag in command.flags if "--help" not in flag.spellings]
    lines = [f"\n### `{name}`\n", f"`{usage}`: {command.help}.\n"]
    if new := [flag for flag in flags if flag not in listed]:
        rows = [f"| {_flag(flag)} | {_cell(flag.help)} |" for flag in new]
        lines += ["| flag | meaning |", "| --- | --- |", *rows, ""]
    for other in dict.fromkeys(listed[flag] for flag in flags if flag in listed):
        same = [f"`{flag.spellings[-1]}`" for flag in flags if listed.get(flag) == other]
        lines.append(f"As for `{other}`: {', '.join(same)}.\n")
    listed |= dict.fromkeys(new, name)
    return "\n".join(lines).rstrip("\n") + "\n"


def _flag(flag: Flag) -> str:
    value = f" {flag.metavar}" if flag.metavar else ""
    return "<br>".join(f"`{spelling}{value}`".replace("|", "\\|") for spelling in flag.spellings)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


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
