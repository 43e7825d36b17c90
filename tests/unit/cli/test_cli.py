"""The command line: its output, and the exit codes for errors."""

import logging
import os
import socket

import pytest

from memlite import __version__
from memlite.cli import main as cli
from memlite.cli.help import help_text
from memlite.cli.main import main
from memlite.config import EXTENDED, OPTIONS, REFUSED
from memlite.core.build import describe_build


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Ignore the environment, and restore the logging configuration after each test."""
    for variable in [name for name in os.environ if name.startswith("MEMLITE_")]:
        monkeypatch.delenv(variable)
    loggers = [logging.getLogger(), logging.getLogger("memlite")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def never_serves(monkeypatch):
    def serve(settings):
        raise AssertionError("the server was started")

    monkeypatch.setattr(cli, "_serve", serve)


def only_error_line(captured):
    """Return the one line on stderr, after checking that nothing else was printed."""
    assert captured.out == ""
    assert captured.err.endswith("\n")
    lines = captured.err.splitlines()
    assert len(lines) == 1
    return lines[0]


# Help


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_help_lists_every_option(option):
    lines = [line for line in help_text().splitlines() if f" --{option.name}" in f" {line}"]
    starts = tuple(
        f"{f'-{option.short},' if option.short else '   '} --{option.name}{end}"
        for end in (" ", "=")
    )
    assert sum(f"{line} ".startswith(starts) for line in lines) == 1


def test_help_explains_every_option():
    flat = " ".join(help_text().split())
    for option in OPTIONS:
        assert " ".join(option.help.split()) in flat


@pytest.mark.parametrize(
    "words",
    ["unix-socket", "enable-ssl", "sasl", "--config=", "--print-config", "-h, --help",
     "-i, --license", "-V, --version", f"memlite {__version__}", "MEMLITE_", *EXTENDED,
     *(f"-{letter}, --{name}" for letter, (name, _) in REFUSED.items())],
)  # fmt: skip
def test_help_mentions_important_facts(words):
    assert words in help_text()


def test_help_fits_a_terminal():
    assert [line for line in help_text().splitlines() if len(line) > 80] == []
    assert [line for line in help_text().splitlines() if line != line.rstrip()] == []
    assert help_text().isascii()


@pytest.mark.parametrize(
    ("name", "default"),
    [("port", "11211"), ("memory-limit", "64"), ("conn-limit", "1024"), ("unix-mask", "700"),
     ("max-item-size", "1m"), ("max-reqs-per-event", "20"), ("slab-growth-factor", "1.25")],
)  # fmt: skip
def test_help_states_defaults(name, default):
    flat = " ".join(help_text().split())
    assert f"(default: {default}" in flat.partition(f"--{name}=")[2].partition(" --")[0]


# Options that print something and exit


@pytest.mark.usefixtures("never_serves")
@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag, capsys):
    assert main([flag]) == 0
    assert capsys.readouterr() == (f"memlite {__version__} ({describe_build()})\n", "")


@pytest.mark.usefixtures("never_serves")
@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["-p", "5", "-h"], ["-hV"]])
def test_help(arguments, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr() == (help_text(), "")


@pytest.mark.usefixtures("never_serves")
def test_license(capsys):
    assert main(["-i"]) == 0
    out, err = capsys.readouterr()
    assert "Apache License" in out
    assert err == ""


@pytest.mark.usefixtures("never_serves")
def test_arguments_default_to_those_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["memlite", "-V"])
    assert main() == 0
    assert capsys.readouterr().out == f"memlite {__version__} ({describe_build()})\n"


# Errors


@pytest.mark.usefixtures("never_serves")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-p", "70000"], "-p: must be at most 65535"),
        (["-c", "0"], "-c: must be at least 1"),
        (["--bogus"], "--bogus not recognized"),
        (["-e", ""], "-e: must not be empty"),
        (["-o", "nonsense"], "unknown option 'nonsense'"),
        (["start"], "unexpected argument 'start'"),
        (["--config=/no/such/file"], "/no/such/file"),
        (["-h", "--bogus"], "--bogus not recognized"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_invalid_settings(arguments, says, capsys):
    assert main(arguments) == 64
    line = only_error_line(capsys.readouterr())
    assert line.startswith("memlite: ")
    assert says in line


@pytest.mark.usefixtures("never_serves")
def test_invalid_environment_variables(monkeypatch, capsys):
    monkeypatch.setenv("MEMLITE_PROT", "5")
    assert main([]) == 64
    assert "MEMLITE_PROT" in only_error_line(capsys.readouterr())


def test_a_port_in_use(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["-l", f"127.0.0.1:{port}"]) == 71
    line = only_error_line(capsys.readouterr())
    assert line == (
        f"memlite: failed to listen on TCP port {port} of 127.0.0.1: Address already in use"
    )


def test_a_unix_socket_that_cannot_be_created(tmp_path, capsys):
    path = tmp_path / "none" / "s"
    assert main(["-s", str(path)]) == 71
    assert str(path) in only_error_line(capsys.readouterr())


def test_an_invalid_address(capsys):
    assert main(["-l", "[::1"]) == 64
    assert "[::1" in only_error_line(capsys.readouterr())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
def test_an_unknown_user(capsys):
    assert main(["-u", "no such user", "-l", "127.0.0.1:0"]) == 71
    assert "no such user" in only_error_line(capsys.readouterr())
