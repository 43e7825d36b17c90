"""The examples in the documentation work, and its statements about the code are true."""

import contextlib
import dataclasses
import doctest
import os
import re
import runpy
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymemcache.client.base import Client

from memlite.backends.jsonfile.load import load as load_files
from memlite.config import OPTIONS, Config, load
from memlite.loadtest.defaults import READ_LATENCY, WRITE_LATENCY
from memlite.loadtest.options import parse as parse_bench
from memlite.loadtest.trace import Trace
from memlite.loadtest.workload import Keys, Load, Values, Workload
from memlite.loadtest.workload_files import load_workload, preset_names
from memlite.memory import Item
from memlite.memory.eviction import cost
from memlite.memory.item import wire_form
from memlite.protocol import Limits
from memlite.protocol.login import TOKEN_LENGTH
from memlite.server.auth import throttle
from memlite.server.auth.users import FILE_LIMIT
from memlite.server.connections.tls_transport import HANDSHAKE_SECONDS
from memlite.server.embedding import OF_THE_PROCESS
from tests.support.servers import RunningServer, running

ROOT = Path(__file__).parent.parent
WORKLOADS = ROOT / "docs" / "reference" / "workloads.md"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running("memlite") as server:
        yield server


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_sessions(page: Path, server: RunningServer) -> None:
    sessions = [text for text in blocks(page, "python") if text.startswith(">>>")]
    if not sessions:
        pytest.skip("this page has no session")
    text = "\n".join(sessions).replace("11211", str(server.port))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    messages: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=messages.append, clear_globs=False)
    for value in test.globs.values():
        if isinstance(value, Client):
            value.close()
    assert result.attempted
    assert not result.failed, "".join(messages)


def test_the_conversation_in_the_tutorial(server: RunningServer) -> None:
    (conversation,) = blocks(ROOT / "docs" / "tutorial.md", "memcached")
    with server.connect() as wire:
        for line in conversation.splitlines():
            if line.startswith("> "):
                wire.send(line[2:].encode() + b"\r\n")
            else:
                assert wire.line() == line.encode() + b"\r\n"


def test_settings_files(tmp_path: Path) -> None:
    examples = [text for page in PAGES if page != WORKLOADS for text in blocks(page, "toml")]
    assert len(examples) >= 2
    for number, text in enumerate(examples):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        settings = load(["--config", str(file)], {})
        assert any(source.startswith("file") for source in settings.sources.values())


def test_the_recipe_for_starting_a_server_from_a_test() -> None:
    (recipe,) = (
        text
        for text in blocks(ROOT / "docs" / "how-to" / "run-a-server.md", "python")
        if "PORT_FILENAME" in text
    )
    check = (
        "\nimport socket\n"
        "with socket.create_connection(('127.0.0.1', port), 5) as client:\n"
        "    client.sendall(b'version\\r\\n')\n"
        "    assert client.recv(100).startswith(b'VERSION ')\n"
        "server.terminate()\n"
        "assert server.wait(10) == 0\n"
    )
    subprocess.run([sys.executable, "-c", recipe + check], check=True, timeout=30)


def test_the_command_line_reference_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "docs" / "write_cli_reference.py"))
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert page == script["page"](), "run scripts/docs/write_cli_reference.py"
    for option in OPTIONS:
        assert f"--{option.name}" in page
        assert option.variable in page


def test_the_workloads_page_lists_settings_and_defaults(tmp_path: Path) -> None:
    page = WORKLOADS.read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for part in (Workload, Keys, Values, Load):
        for field in dataclasses.fields(part):
            if field.name in ("mix", "keys", "values", "load"):
                assert f"## `[{field.name}]`" in page
                continue
            row = rows[field.name]
            if isinstance(field.default, bool):
                assert str(field.default).lower() in row
            elif isinstance(field.default, int | float):
                shown = str(field.default).removesuffix(".0")
                assert shown in row.replace(",", ""), row
    for name in preset_names():
        assert f"`{name}`" in page or name in ("ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e")
    (example,) = blocks(WORKLOADS, "toml")
    (tmp_path / "example.toml").write_text(example)
    assert load_workload(str(tmp_path / "example.toml")).mix["get"] == 20
    (trace,) = blocks(WORKLOADS, "csv")
    (tmp_path / "trace.csv").write_text(trace)
    replayed = Trace(Workload(trace=str(tmp_path / "trace.csv"))).operations(0, 1)
    assert [operation.kind for _, operation in replayed] == ["set", "get", "get"]


def test_the_results_page_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "docs" / "write_results_reference.py"))
    page = (ROOT / "docs" / "reference" / "results.md").read_text()
    assert page == script["page"](), "run scripts/docs/write_results_reference.py"


def test_figures_on_the_page_about_reading_them() -> None:
    page = (ROOT / "docs" / "reading-the-figures.md").read_text()
    assert (READ_LATENCY, WRITE_LATENCY) == (
        "lognormal:median=15ms,p99=60ms",
        "lognormal:median=30ms,p99=120ms",
    )
    assert "reads 15 ms in the median and 60 ms for p99, writes 30 and 120" in page


def test_links_are_not_broken() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_scripts_named_in_the_readme_are_executable() -> None:
    for script in re.findall(r"\./scripts/(\w+)", (ROOT / "README.md").read_text()):
        assert (ROOT / "scripts" / script).stat().st_mode & 0o111


def test_the_examples_in_the_file_format_page_can_be_loaded(tmp_path: Path) -> None:
    page = ROOT / "docs" / "reference" / "file-format.md"
    snapshot, journal = blocks(page, "json")
    (tmp_path / "cache.json").write_text(snapshot)
    (tmp_path / "cache.json.journal.3").write_text(journal)
    loaded = load_files(tmp_path / "cache.json")
    assert {key: (item.value, item.version) for key, item in loaded.items.items()} == {
        b"user:1": (b"Ada", 12),
        b"user:2": (b"Grace", 18),
    }
    assert (loaded.version, loaded.flush_at) == (20, 1_795_000_060)


def test_the_backend_page_shows_the_tested_package(tmp_path: Path) -> None:
    backend, tests = blocks(ROOT / "docs" / "how-to" / "write-a-backend.md", "python")
    package = ROOT / "tests" / "support" / "package_with_backend"
    assert backend == (package / "memlite_sqlite.py").read_text()
    assert (
        f"It is {len(backend.splitlines())} lines"
        in (ROOT / "docs" / "how-to" / "write-a-backend.md").read_text()
    )
    (tmp_path / "test_sqlite.py").write_text(tests)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not large"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{package}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout


def test_the_page_on_testing_applications(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "test-against-memlite.md"
    (settings,) = blocks(page, "ini")
    (tmp_path / "pytest.ini").write_text(settings)
    (greeting,) = (text for text in blocks(ROOT / "README.md", "python") if "(memlite)" in text)
    for number, text in enumerate([greeting, *blocks(page, "python")]):
        (tmp_path / f"test_{number}.py").write_text(text)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "6 passed" in run.stdout, run.stdout + run.stderr
    options = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"], capture_output=True, text=True, check=True
    ).stdout
    shown = set(re.findall(r"(?:--memlite-[a-z-]+|memlite_[a-z_]+)", options))
    documented = set(
        re.findall(r"`(--memlite-[a-z-]+|memlite_(?!server)[a-z_]+)", page.read_text())
    )
    assert documented == shown


def test_the_page_on_embedding() -> None:
    page = ROOT / "docs" / "how-to" / "embed-a-server.md"
    first, second = (
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=30
        ).stdout
        for text in blocks(page, "python")
    )
    assert re.fullmatch(r"serving on 127\.0\.0\.1:\d+\nSTORED\n", first)
    assert second == "True True\n"
    text = page.read_text()
    assert set(re.findall(r"`(\w+)`", text.partition("- `daemon`")[2])) <= set(OF_THE_PROCESS)


def test_the_page_on_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "how-to" / "use-tls.md"
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command")
    monkeypatch.chdir(tmp_path)
    clients = blocks(page, "python")
    files = {"PYTHONPATH": str(ROOT)}
    for commands in blocks(page, "sh"):
        made, command, flags = commands.partition("\nmemlite ")
        if not command:
            continue
        subprocess.run(["bash", "-e", "-c", made], check=True, capture_output=True, timeout=30)
        with contextlib.ExitStack() as stack:
            tls = ssl.create_default_context(cafile="cert.pem")
            if "ca.pem" in flags:
                tls.load_cert_chain("client.pem", "client-key.pem")
            server = stack.enter_context(
                running("memlite", *shlex.split(flags), environment=files, tls=tls)
            )
            program = clients.pop(0).replace("11211", str(server.port))
            subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=30)
    assert not clients
    assert f"closed after {HANDSHAKE_SECONDS:g} seconds" in page.read_text()


def test_figures_in_the_documentation_equal_those_in_the_code() -> None:
    protocol = (ROOT / "docs" / "reference" / "protocol.md").read_text()
    limits = Limits()
    assert f"| key | {limits.key_length} |" in protocol
    assert f"| a line that does not end | {limits.line_length:,} |" in protocol
    assert limits.get_line_length == 4 * 1024 * 1024
    assert "a get line may have 4 MiB" in protocol
    # "its value, twice its key and about 200 bytes": the objects, and the dict at half its
    # capacity.
    key, value = b"k" * 20, b"v" * 100
    dict_slots = 42
    item = Item(wire_form(key, 0, value), 0)
    assert 195 <= cost(key, item) + dict_slots - 2 * len(key) - len(value) <= 205


def test_the_changelog_has_this_version() -> None:
    from memlite import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_bench_commands_in_the_documentation_are_valid() -> None:
    lines = [
        shlex.split(line, comments=True)[1:]
        for page in PAGES
        for text in blocks(page, "sh")
        for line in text.splitlines()
        if line.startswith("./scripts/bench")
    ]
    assert len(lines) >= 10
    for words in lines:
        assert parse_bench(words[: words.index(">")] if ">" in words else words)


def test_the_page_on_passwords(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "require-passwords.md"
    text, *_ = blocks(page, "text")
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text(text)
    (conversation,) = blocks(page, "memcached")
    programs = blocks(page, "python")
    with running("memlite", "-S", "-B", "auto", "-Y", str(users)) as server:
        with server.connect() as wire:
            for line in conversation.splitlines():
                if line.startswith("> "):
                    wire.send(line[2:].encode() + b"\r\n")
                else:
                    assert wire.line() == line.encode() + b"\r\n"
        assert len(programs) == 2
        for program in programs:
            exec(program.replace("11211", str(server.port)), {})
    assert str(Config().auth_timeout) in page.read_text()
    limits = (throttle.FAILURES, throttle.PATIENCE, 1 / throttle.SECONDS_EACH, throttle.ADDRESSES)
    assert limits == (20, 5, 2, 10_000)
    assert (FILE_LIMIT, TOKEN_LENGTH) == (64 * 1024, 16 * 1024)


LITE = ROOT / "docs" / "how-to" / "speak-memcached-lite.md"


def test_the_page_on_memcached_lite() -> None:
    (conversation,) = blocks(LITE, "memcached")
    (shell,) = blocks(LITE, "text")
    with running("memlite", "--dialect", "lite") as server:
        with server.connect() as wire:
            for line in conversation.splitlines():
                if line.startswith("> "):
                    wire.send(line[2:].encode() + b"\r\n")
                else:
                    assert wire.line() == line.encode() + b"\r\n"
        typed, shown = [], []
        for line in shell.splitlines():
            by_person = re.match(r"localhost:11211> |\d+ bytes> ", line)
            (typed if by_person else shown).append(line[by_person.end() :] if by_person else line)
        run = subprocess.run(
            [sys.executable, "-m", "memlite", "shell", "--dialect", "lite",
             f"127.0.0.1:{server.port}"],
            input="\n".join(typed),
            capture_output=True,
            text=True,
            timeout=30,
        )  # fmt: skip
        assert (run.stdout.splitlines(), run.stderr) == (shown, "")


def test_servers_and_bench_commands_on_the_page_on_memcached_lite() -> None:
    servers, benches = blocks(LITE, "sh")
    for line in servers.splitlines():
        assert load(line.split()[1:], {}).config.dialect == "lite"
    for line in benches.splitlines():
        assert parse_bench(line.split()[1:])
