"""The shell as a program, with real servers and with servers of other protocols."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memlite.cli.main import main
from tests.support.certificates import Authority, client_context
from tests.support.foreign_servers import answering, serving
from tests.support.forked import run_memlite
from tests.support.paths import ROOT
from tests.support.servers import (
    PEER_VARIABLE,
    RunningServer,
    memcached_path,
    memcached_version,
    needs_memcached,
    running,
)

ENVIRONMENT = {name: value for name, value in os.environ.items() if name[:8] != "MEMLITE_"}


def shell(
    *arguments: str | bytes, lines: bytes = b"", timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return run_memlite(
        "shell",
        *arguments,
        lines=lines,
        timeout=timeout,
        environment={**ENVIRONMENT, **environment},
    )


def address(server: RunningServer) -> str:
    return server.path or f"127.0.0.1:{server.port}"


def said(run: subprocess.CompletedProcess[bytes]) -> str:
    """Return the single error line with which the program failed."""
    text = run.stderr.decode()
    assert run.returncode == 1, (run.stdout, text)
    assert text.startswith("(error) "), text
    assert text.count("\n") == 1, text
    return text


@pytest.fixture(
    scope="module", params=["memlite", pytest.param("memcached", marks=needs_memcached)]
)
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(request.param) as server:
        yield server


# Single commands


def test_a_single_command(server: RunningServer) -> None:
    at = address(server)
    for words, output in (
        (["set", "one", 'a "b"', "3", "60"], b"STORED\n"),
        (["get", "one", "none"], b'one: 5 bytes, flags 3\na "b"\n(1 of 2 found)\n'),
        (["add", "one", "x"], b"NOT_STORED\n"),
        (["set", "one", "\udcff"], b"STORED\n"),
        (["--raw", at, "get", "one"], b"\xff"),
        (["delete", "one"], b"DELETED\n"),
        (["delete", "one"], b"NOT_FOUND\n"),
        (["set n 0 0 1"], b""),
        (['set n "41"'], b"STORED\n"),
        (["incr", "n", "1"], b"42\n"),
        (["delete n noreply"], b"(no reply)\n"),
    ):
        run = shell(*([] if words[0] == "--raw" else [at]), *map(os.fsencode, words))
        assert (run.returncode, run.stdout) == (0 if output else 1, output), (words, run.stderr)


def test_an_error_reply_sets_the_exit_code(memlite: RunningServer) -> None:
    assert shell(address(memlite), "incr", "n").returncode == 1
    assert shell(address(memlite), "nonsense").stdout == b"ERROR\n"
    assert shell(address(memlite), "nonsense").returncode == 1
    assert "usage: set" in said(shell(address(memlite), "set", "k"))
    wrong = shell("--nonsense")
    assert (wrong.returncode, wrong.stdout) == (64, b"")
    assert wrong.stderr.startswith(b"memlite: shell: ")


def test_a_value_from_a_file_and_back(memlite: RunningServer) -> None:
    data = os.urandom(300_000) + b"\r\nEND\r\n"
    assert shell("-x", address(memlite), "set", "file", "7", lines=data).stdout == b"STORED\n"
    assert shell("--raw", address(memlite), "get", "file").stdout == data
    shown = shell(address(memlite), "get", "file").stdout.splitlines()
    assert shown[0] == b"file: 300007 bytes, flags 7"
    assert len(shown) == 1 + 300_007 // 16 + 1
    too_long = shell("-x", "--max-value", "1k", address(memlite), "set", "file", lines=data)
    assert "exceeds the limit of 1,024 bytes" in said(too_long)
    assert "exceeds the limit of 1,024" in said(
        shell("--max-value", "1k", address(memlite), "get", "file")
    )


def test_a_unix_socket(start: Callable[..., RunningServer]) -> None:
    assert shell(address(start(unix=True)), "version").stdout.startswith(b"VERSION ")


def test_numbers_are_not_formatted_in_a_pipe(memlite: RunningServer) -> None:
    lines = shell(address(memlite), "stats").stdout.decode().splitlines()
    values = dict(line.split(maxsplit=1) for line in lines)
    assert values["limit_maxbytes"] == "67108864"
    assert shell("--raw", address(memlite), "stats").stdout.startswith(b"STAT pid ")


# Lines from a pipe


def test_raw_memcached_text(server: RunningServer) -> None:
    text = b"set a 0 0 7\r\nx\r\nEND\r\n\r\nget a\r\nset b 0 0 1\ny\nget b\nquit\nget a\n"
    run = shell(address(server), lines=text.replace(b"7", b"6"))
    assert run.stdout == (
        b"STORED\na: 6 bytes, flags 0\nx\\r\nEND\nSTORED\nb: 1 byte, flags 0\ny\n"
    )
    assert (run.returncode, run.stderr) == (0, b"")


def test_quoted_values_and_errors_in_a_pipe(server: RunningServer) -> None:
    lines = b'set a "1 2"\nset b 0 0 1\nlong\nset c 0 0 99999999999\nflush_all\n'
    run = shell(address(server), lines=lines)
    assert run.returncode == 1
    assert run.stdout == b"STORED\n"
    first, second = run.stderr.decode().splitlines()
    assert "line 3: the value is longer than 1 bytes; it was not sent" in first
    assert "exceeds the limit of 67,108,864" in second
    run = shell(address(server), lines=b"set c 0 0 3\r\nabc")
    assert run.stdout == b"STORED\n"
    assert "ended after 2 of the value's 3" in said(
        shell(address(server), lines=b"set c 0 0 3\nab")
    )


@pytest.mark.parametrize(
    "line",
    [b"set %b 0 0 9" % (b"k" * 251), b"set k zero 0 9", b"cas k 0 0 9", b"set k 9999999999 0 9",
     b"ms %b 9 T0" % (b"k" * 251)],
)  # fmt: skip
def test_a_value_is_never_executed_as_commands(server: RunningServer, line: bytes) -> None:
    lines = b'set kept "x"\n' + line + b"\r\nflush_all\r\nget kept\n"
    run = shell(address(server), lines=lines)
    assert run.stdout == b"STORED\nkept: 1 byte, flags 0\nx\n"
    assert said(run)


def test_control_characters_in_error_messages_are_escaped(memlite: RunningServer) -> None:
    run = shell(address(memlite), lines=b'set k "\\\x1b"\nset \xff "x"y\n')
    assert b"unknown escape \\\\x1b" in run.stderr
    assert b"\x1b" not in run.stderr


def test_the_length_of_lines_is_limited(memlite: RunningServer) -> None:
    run = shell(address(memlite), lines=b"get " + b"k" * 9_000_000 + b"\nversion\n")
    assert run.stdout.startswith(b"VERSION")
    assert "line 1 is longer than 4,194,304 bytes" in said(run)


def test_a_pipe_does_not_need_prompt_toolkit(memlite: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "prompt_toolkit.py").write_text("raise ModuleNotFoundError(name='prompt_toolkit')")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    run = shell(address(memlite), lines=b"version\n", PYTHONPATH=path)
    assert run.stdout.startswith(b"VERSION")


# Newer commands, on a memcached that supports them


@needs_memcached
def test_meta_commands_and_dumps(start: Callable[..., RunningServer]) -> None:
    at = address(start(kind="memcached"))
    run = shell(
        at,
        lines=b'ms k "{\\"a\\":[1,2]}" T60 F3\nmg k v t f s k\nmd k q\nmg k v\n'
        b'ms z 2 q\nhi\nmg z v q\nmn\nma z\nset d "x"\nlru_crawler metadump all\n',
    )
    assert (
        run.stdout.decode()
        .replace("TTL 59", "TTL 60")
        .startswith(
            "HD  (done)\nk: 11 bytes, TTL 60 s, flags 3, size 11\n"
            '{\n  "a": [\n    1,\n    2\n  ]\n}\n'
            "(no reply)\nEN  (not found)\n(no reply)\nz: 2 bytes\nhi\nMN\nCLIENT_ERROR "
        )
    )
    assert b"key=d " in run.stdout
    assert run.returncode == 1


@needs_memcached
def test_watch(start: Callable[..., RunningServer]) -> None:
    server = start(kind="memcached")
    watcher = subprocess.Popen(
        [sys.executable, "-m", "memlite", "shell", address(server), "watch", "mutations"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == b"OK\n"
    assert server.ask(b"set seen 0 0 1\r\nx\r\nquit\r\n") == b"STORED\r\n"
    assert b"key=seen" in watcher.stdout.readline()
    watcher.send_signal(signal.SIGINT)
    _, errors = watcher.communicate(timeout=60)
    assert (watcher.returncode, errors) == (130, b"")


# Missing and foreign servers


def test_no_server() -> None:
    with answering() as port:
        pass
    assert "Connection refused" in said(shell(f"127.0.0.1:{port}", "version"))
    assert "cannot connect to no-such-host.invalid:11211: " in said(
        shell("no-such-host.invalid", "version")
    )
    assert "No such file" in said(shell("/no/such/socket", "version"))
    # The error is printed once; later lines are not sent.
    assert "Connection refused" in said(shell(f"127.0.0.1:{port}", lines=b"get a\nget b\n"))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "this is a web server"),
        (b"\x1b[2J\x1b]0;title\x07\n", "not memcached's protocol: '\\x1b[2J"),
        (b"x" * 200_000, "not memcached's protocol: 'xxx"),
        (b"VALUE k 0 1073741824\r\n", "a value of 1,073,741,824 bytes exceeds"),
        (b"VALUE k 0 5\r\nhel", "timed out (--timeout)"),
        (b"", "timed out (--timeout)"),
        (b"VALUE k 0 1\r\nx\r\nEND\r\nVALUE", "unexpected data after the reply"),
    ],
)
def test_a_foreign_server(reply: bytes, words: str) -> None:
    with answering(reply) as port:
        seconds = "1" if words == "timed out (--timeout)" else "10"
        run = shell("--timeout", seconds, f"127.0.0.1:{port}", "get", "k")
        assert words in said(run)
        assert b"\x1b" not in run.stdout + run.stderr


def test_a_server_that_sends_single_bytes_does_not_block_the_shell() -> None:
    def drip(connection: object) -> None:
        while True:
            connection.sendall(b"x")  # type: ignore[attr-defined]
            time.sleep(0.1)

    with serving(drip) as port:
        assert "timed out (--timeout)" in said(
            shell("--timeout", "1", f"127.0.0.1:{port}", "get", "k", timeout=60)
        )


def test_endless_statistics_are_shown_as_they_arrive_and_end_with_the_reader() -> None:
    def pour(connection: object) -> None:
        while True:
            connection.sendall(b"STAT a 1\r\n" * 1000)  # type: ignore[attr-defined]

    with serving(pour) as port:
        process = subprocess.Popen(
            [sys.executable, "-m", "memlite", "shell", f"127.0.0.1:{port}", "stats"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        assert process.stdout is not None
        assert len(process.stdout.read(500_000)) == 500_000
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(status.split("VmRSS:")[1].split()[0]) < 100_000
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()


def test_reconnects_after_the_server_has_restarted(start: Callable[..., RunningServer]) -> None:
    server = start()
    process = subprocess.Popen(
        [sys.executable, "-m", "memlite", "shell", address(server)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"version\n")
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"VERSION")
    server.stop()
    again = subprocess.Popen(
        [sys.executable, "-m", "memlite", "-p", str(server.port)], env=ENVIRONMENT
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and shell(address(server), "version").returncode:
            pass
        output, errors = process.communicate(b"version\n", timeout=60)
        assert output.startswith(b"VERSION")
        assert errors.decode() == (f"({address(server)} had closed the connection; reconnected)\n")
        assert process.returncode == 0
    finally:
        again.terminate()
        again.wait(60)


def test_json_of_a_real_client_is_displayed(memlite: RunningServer) -> None:
    value = json.dumps({"name": "Ada", "tags": []})
    shell(address(memlite), "set", "user:1", value)
    assert (
        shell(address(memlite), "get", "user:1")
        .stdout.decode()
        .endswith('{\n  "name": "Ada",\n  "tags": []\n}\n')
    )


# TLS and authentication, on a server that supports them


def speaks_tls_and_passwords() -> bool:
    path = memcached_path()
    if path is None or memcached_version() < (1, 5, 15):
        return False
    text = subprocess.run([path, "-h"], capture_output=True, text=True).stdout
    return "enable-ssl" in text and "auth-file" in text


needs_tls = pytest.mark.skipif(
    not speaks_tls_and_passwords() or shutil.which("openssl") is None,
    reason=f"needs openssl, and a memcached built with TLS ({PEER_VARIABLE})",
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return a CA, and a certificate and key for localhost and cache.test."""
    folder = tmp_path_factory.mktemp("certificate")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout key.pem "
        "-out cert.pem -addext subjectAltName=DNS:localhost,DNS:cache.test"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return str(folder / "cert.pem"), str(folder / "key.pem")


def tls(certificate: tuple[str, str], more: str = "") -> list[str]:
    cert, key = certificate
    return ["-Z", "-o", f"ssl_chain_cert={cert},ssl_key={key}{more}"]


@pytest.mark.slow
@needs_tls
def test_tls(certificate: tuple[str, str]) -> None:
    cert, _ = certificate
    with running("memcached", *tls(certificate)) as server:
        named, at = f"localhost:{server.port}", address(server)
        for flags in (
            ["--cacert", cert, named],
            ["--cacert", cert, "--sni", "cache.test", at],
            ["--tls-skip-verify", at],
        ):
            assert shell("--tls", *flags, "version").stdout.startswith(b"VERSION"), flags
        assert "certificate verification failed: " in said(shell("--tls", named, "version"))
        assert "IP address mismatch" in said(shell("--tls", "--cacert", cert, at, "version"))
        assert said(shell("--timeout", "1", at, "version"))
        data = os.urandom(500_000)
        with_tls = ["--tls", "--cacert", cert, "--raw", named]
        assert shell("-x", *with_tls, "set", "k", lines=data).stdout == b"STORED\n"
        assert shell(*with_tls, "get", "k").stdout == data


@needs_tls
def test_a_client_certificate(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    more = f",ssl_verify_mode=2,ssl_ca_cert={cert}"
    with running("memcached", *tls(certificate, more)) as server:
        flags = ["--tls", "--cacert", cert, f"localhost:{server.port}"]
        # The error is the server's alert, unless the connection ends before it is read.
        assert re.search("TLS: .*certificate|closed the connection", said(shell(*flags, "version")))
        run = shell("--cert", cert, "--key", key, *flags, "version")
        assert run.stdout.startswith(b"VERSION")


def test_tls_to_a_server_without_tls(memlite: RunningServer) -> None:
    run = shell("--tls", "--tls-skip-verify", address(memlite), "version")
    assert "it does not speak TLS" in said(run)


def test_no_tls_to_a_server_with_tls(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("server")
    with running("memlite", *issued.flags, tls=client_context(issued.ca)) as server:
        at = address(server)
        hint = f"(error) {at} closed the connection without an answer; if it uses TLS, try --tls\n"
        assert said(shell(at, "get", "k")) == hint
        assert said(shell("--latency", at)) == hint
        assert shell("--tls", "--cacert", str(issued.ca), at, "version").returncode == 0


def test_no_hint_about_tls_after_a_server_has_answered() -> None:
    with answering(b"VERSION 1\r\n", b"VALUE k", then_close=True) as port:
        run = shell(f"127.0.0.1:{port}", lines=b"version\nget k\n")
    assert said(run) == f"(error) 127.0.0.1:{port} closed the connection\n"


@pytest.mark.skipif(not speaks_tls_and_passwords(), reason=f"needs memcached -Y ({PEER_VARIABLE})")
def test_authentication(tmp_path: Path) -> None:
    users, password = tmp_path / "users", tmp_path / "password"
    users.write_text("ada:se-cret\n")
    password.write_text("se-cret\n")
    with running("memcached", "-Y", str(users)) as server:
        at = address(server)
        run = shell("--user", "ada", "--password-file", str(password), at, "set", "k", "v")
        assert run.stdout == b"STORED\n"
        secret = {"MEMLITE_SHELL_PASSWORD": "se-cret"}
        run = shell("--user", "ada", at, lines=b"get k\nget k\n", **secret)
        assert run.stdout.count(b"k: 1 byte") == 2
        wrong = shell("--user", "ada", at, "get", "k", MEMLITE_SHELL_PASSWORD="wrong")
        assert "refused user 'ada': CLIENT_ERROR authentication failure" in said(wrong)
        assert "wrong" not in said(wrong)
        run = shell("--user", "ada", at, "get", "k")
        assert (run.returncode, run.stdout) == (64, b"")
        assert b"--password-file or MEMLITE_SHELL_PASSWORD" in run.stderr
        # Manual authentication, as with other clients, and commands without authentication.
        run = shell(at, lines=b'set k "v"\nget k\nset auth "ada se-cret"\nget k\n')
        assert run.stdout.decode() == (
            "CLIENT_ERROR unauthenticated\n" * 2 + "STORED\nk: 1 byte, flags 0\nv\n"
        )


# Views for people and programs


def test_json(server: RunningServer) -> None:
    def shown(*words: str) -> object:
        run = shell("--json", address(server), *words)
        return json.loads(run.stdout)

    assert shown("set", "json", "a b") == {"reply": "STORED"}
    (item,) = shown("gets", "json", "nothing")["items"]  # type: ignore[index]
    assert (item["key"], item["flags"], item["value"]) == ("json", 0, "a b")
    assert shown("stats")["stats"]["curr_items"] >= 1  # type: ignore[index]
    assert shown("nonsense") == {"error": "ERROR"}


def test_a_command_is_repeated(server: RunningServer) -> None:
    shell(address(server), "set", "counter", "0")
    run = shell("--repeat", "3", "--interval", "0.01", address(server), "incr", "counter", "2")
    assert (run.stdout, run.returncode) == (b"2\n4\n6\n", 0)
    assert shell("-r", "2", "-i", "0.01", address(server), "incr", "none", "2").stdout == (
        b"NOT_FOUND\n" * 2
    )


def test_latency(server: RunningServer) -> None:
    run = shell("--latency", "-r", "2", "-i", "0.05", address(server))
    assert run.returncode == 0
    pattern = rb"(min [\d.]+  p50 [\d.]+  p99 [\d.]+  max [\d.]+ ms  \(\d+ samples\)\n){2}"
    assert re.fullmatch(pattern, run.stdout), run.stdout


def test_statistics_of_each_interval(server: RunningServer) -> None:
    run = shell("--stat", "--repeat", "22", "--interval", "0.01", address(server))
    lines = run.stdout.decode().splitlines()
    titles = ["items", "memory", "clients", "gets/s", "hits", "sets/s", "evicted/s"]
    assert [line.split() == titles for line in lines].count(True) == 2  # for every 20 lines
    assert len(lines) == 24
    assert max(map(len, lines)) < 80
    assert re.fullmatch(r" +\d+ +[\d.]+ MB +\d+ +\d+ +\S+ +\d+ +\d+", lines[1]), lines[1]


@pytest.mark.parametrize("view", ["--latency", "--stat"])
def test_a_view_of_an_unreachable_server(view: str) -> None:
    assert "cannot connect to 127.0.0.1:1" in said(shell(view, "127.0.0.1:1"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--stat", "localhost", "get", "a"], "--stat cannot be combined with a command"),
        (["--latency", "--stat"], "not allowed with argument --latency"),
        (["--json", "--raw", "localhost", "mn"], "not allowed with argument --json"),
        (["--repeat", "3"], "--repeat requires a command, --latency or --stat"),
        (
            ["--repeat", "0", "localhost", "mn"],
            "must be at least 1, or -1 to repeat forever, not 0",
        ),
        (
            ["--repeat", "x", "localhost", "mn"],
            "must be at least 1, or -1 to repeat forever, not x",
        ),
        (["--interval", "0", "localhost", "mn"], "must be more than 0"),
        (["--stat", "--dialect", "lite"], "which has no statistics"),
    ],
)
def test_invalid_options_of_views_are_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shell", *arguments]) == 64
    errors = capsys.readouterr().err
    assert says in errors
    assert errors.count("\n") == 1


def test_an_unknown_command_gets_a_hint(server: RunningServer) -> None:
    run = shell(address(server), "gte", "a")
    assert (run.stdout, run.returncode) == (b"ERROR\n", 1)
    assert run.stderr == b"(unknown command gte; did you mean get?)\n"
    assert shell(address(server), "xyzzy").stderr == b""
    assert shell(address(server), "incr", "a", "x").stderr == b""
