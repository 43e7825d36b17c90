"""The log of real servers: as JSON, at starts that fail, and with many failures at once."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.logins import FAILURE, USERS, write_users
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]
WRONG = b"set x 0 0 7\r\nfoo bad\r\n"


def fail(server: RunningServer, times: int) -> None:
    """Send a wrong password from several clients in turn."""
    for _ in range(times):
        with server.connect() as wire:
            assert wire.ask(WRONG) == FAILURE


@pytest.mark.parametrize("style", ["text", "json"])
def test_many_failures_are_one_line_and_a_count(tmp_path: Path, style: str) -> None:
    users = write_users(tmp_path, USERS)
    with running("memlite", "-v", "-Y", str(users), "--log-format", style) as server:
        fail(server, 5)
        assert server.stop() == 0
        lines = [one for one in server.log.read_text().splitlines() if "authentication f" in one]
    if style == "text":
        first, *others = lines
        pattern = r"<\d+ authentication failed, from tcp:127\.0\.0\.1:\d+"
        assert re.fullmatch(pattern, first)
        counts = [re.fullmatch(rf"{pattern}(?: \(and (\d+) more .*\))?", one) for one in others]
        assert sum(1 + int(found[1] or 0) for found in counts if found) == 4
        return
    found = [json.loads(line) for line in lines]
    assert {one["event"] for one in found} == {"authentication_failed"}
    assert all(one["client"].startswith("tcp:127.0.0.1:") for one in found)
    assert sum(one.get("count", 1) for one in found) == 5
    assert len(found) < 5


@pytest.mark.parametrize("kind", ["memlite", "proxy"])
def test_every_line_is_an_object(tmp_path: Path, kind: str) -> None:
    options = ("-vv", "--log-format", "json")
    with running("memlite", *(options if kind == "memlite" else ())) as node:
        if kind == "proxy":
            with proxy([node], *options) as front:
                assert front.ask(b"set a 0 0 1\r\nx\r\nquit\r\n") == b"STORED\r\n"
                assert front.stop() == 0
                text = front.log.read_text()
        else:
            assert node.ask(b"set a 0 0 1\r\nx\r\nquit\r\n") == b"STORED\r\n"
            assert node.stop() == 0
            text = node.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    moment = re.compile(r"\d{4}(-\d\d){2}T\d\d(:\d\d){2}\.\d{3}Z")
    assert all(moment.fullmatch(one["time"]) for one in lines)
    assert any(one["message"].endswith("set a 0 0 1") for one in lines)


def ended(*arguments: str, **variables: str) -> tuple[int, str]:
    """Return the exit code and stderr of a program that does not start."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "memlite", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    return done.returncode, done.stderr


def test_the_reason_for_a_failed_start_is_an_object_too(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "memlite.toml"
    file.write_text('log-format = "json"\nmemory-limit = 0\n')
    taken = f"127.0.0.1:{start().port}"
    json_format = ("--log-format", "json")
    for arguments, variables, exit_code, says in [
        ((*json_format, "--nonsense"), {}, 64, "option --nonsense not recognized"),
        (("--log-format=json", "-m", "0"), {}, 64, "-m: must be at least 1, not 0"),
        (("--config", str(file)), {}, 64, "memory-limit: must be at least 1"),
        (("-m", "0"), {"MEMLITE_LOG_FORMAT": "json"}, 64, "-m: must be at least 1"),
        ((*json_format, "-l", taken), {}, 71, "ddress already in use"),
        (("proxy", *json_format, "--nodes", "a", "-l", taken), {}, 71, "ddress already in use"),
        (("proxy", *json_format, "--nodes", ""), {}, 64, "proxy: --nodes: "),
    ]:
        code, text = ended(*arguments, **variables)
        assert code == exit_code
        (line,) = text.splitlines()
        found = json.loads(line)
        assert says in found["message"]
        assert (found["level"], found["event"]) == ("error", "not_started")
        assert found["exit_code"] == code
    assert ended("-m", "0") == (64, "memlite: -m: must be at least 1, not 0\n")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memlite", "proxy"])
def test_the_count_is_logged_while_it_runs(tmp_path: Path, kind: str) -> None:
    secured = ("-v", "-Y", str(write_users(tmp_path, USERS)))
    with running("memlite", *(secured if kind == "memlite" else ())) as node:
        if kind == "memlite":
            fail(node, 4)
            assert wait_until(lambda: "(and 2 more like this" in node.log.read_text())
            return
        with proxy([node], *secured) as front:
            fail(front, 4)
            assert wait_until(lambda: "(and 2 more like this" in front.log.read_text())


def test_a_crash_is_an_object_too() -> None:
    program = "from memlite.core import logs; logs.configure(30, 'json'); raise ValueError('why')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    (line,) = done.stderr.splitlines()
    found = json.loads(line)
    assert done.returncode == 1
    assert (found["level"], found["event"], found["error"]) == ("critical", "crashed", "ValueError")
    assert found["exception"].endswith("ValueError: why")
