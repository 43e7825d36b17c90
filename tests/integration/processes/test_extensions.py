"""Execution of commands in C: what the log says, and how to turn it off."""

import subprocess
import sys
from pathlib import Path

import pytest

from memlite.server.execution import runner
from tests.support.servers import running

IN_C = "running most commands in C"


def test_the_log_says_that_commands_are_carried_out_in_c():
    with running("memlite", "-v") as server:
        assert (IN_C in Path(server.log).read_text()) == (runner.NATIVE is not None)


@pytest.mark.parametrize("kind", ["memlite-asyncio", "memlite-file"])
def test_other_servers_do_not_say_it(kind):
    # The asyncio server has MEMLITE_NO_EXTENSIONS set, so that tests of all servers cover both.
    with running(kind, "-v") as server:
        assert IN_C not in Path(server.log).read_text()


def test_extensions_are_left_out_from_the_start():
    program = (
        "from memlite.memory.shared import native; from memlite.proxy import framing;"
        "from memlite.server.execution import runner;"
        "print(native(), framing.NATIVE, runner.NATIVE)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"MEMLITE_NO_EXTENSIONS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "None None None\n"
