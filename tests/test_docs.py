"""The examples in the documentation work, and its statements about the code are true."""

import dataclasses
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from memlite.backends.jsonfile.load import load as load_files
from memlite.cli.subcommands import SUBCOMMANDS
from memlite.cluster.topology import read_topology
from memlite.config import OPTIONS, Config, load
from memlite.loadtest.defaults import READ_LATENCY, WRITE_LATENCY
from memlite.loadtest.trace import Trace
from memlite.loadtest.workload import Keys, Load, Values, Workload
from memlite.loadtest.workload_files import load_workload, preset_names
from memlite.memory import Item
from memlite.memory.eviction import cost
from memlite.memory.item import wire_form
from memlite.protocol import Limits
from memlite.protocol.login import TOKEN_LENGTH
from memlite.server.auth import throttle
from memlite.server.auth.users import MAX_FILE_SIZE
from memlite.server.connections.tls_transport import HANDSHAKE_SECONDS
from memlite.server.embedding import OF_THE_PROCESS
from memlite.telemetry.metrics.definitions import METRICS
from memlite.telemetry.metrics.exporter_names import EXPORTER_METRICS
from memlite.telemetry.metrics.proxy_metrics import PROXY_METRICS
from tests.support.pages import PAGES, texts
from tests.support.paths import ROOT

WORKLOADS = ROOT / "docs" / "reference" / "workloads.md"
HOW_TO = ROOT / "docs" / "how-to"


def test_settings_files(tmp_path: Path) -> None:
    examples = [
        text
        for page in PAGES
        if page != WORKLOADS
        for text in texts(page, "toml")
        if "[[nodes]]" not in text
    ]
    assert len(examples) >= 2
    for number, text in enumerate(examples):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        settings = load(["--config", str(file)], {})
        assert any(source.startswith("file") for source in settings.sources.values())


def test_topology_files(tmp_path: Path) -> None:
    examples = [text for page in PAGES for text in texts(page, "toml") if "[[nodes]]" in text]
    assert examples
    for number, text in enumerate(examples):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        assert read_topology(file).nodes


def test_the_recipe_for_starting_a_server_from_a_test() -> None:
    (recipe,) = (
        text
        for text in texts(ROOT / "docs" / "how-to" / "run-a-server.md", "python")
        if "PORT_FILENAME" in text
    )
    check = (
        "\nimport socket\n"
        "with socket.create_connection(('127.0.0.1', port), 60) as client:\n"
        "    client.sendall(b'version\\r\\n')\n"
        "    assert client.recv(100).startswith(b'VERSION ')\n"
        "server.terminate()\n"
        "assert server.wait(10) == 0\n"
    )
    subprocess.run([sys.executable, "-c", recipe + check], check=True, timeout=60)


def test_the_command_line_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "docs")
    script = runpy.run_path(str(ROOT / "scripts" / "docs" / "write_cli_reference.py"))
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert page == script["page"](), "run scripts/docs/write_cli_reference.py"
    for option in OPTIONS:
        assert f"--{option.name}" in page
        assert option.variable in page
    for name in SUBCOMMANDS:
        assert f"### `memlite {name}`" in page


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
    (example,) = texts(WORKLOADS, "toml")
    (tmp_path / "example.toml").write_text(example)
    assert load_workload(str(tmp_path / "example.toml")).mix["get"] == 20
    (trace,) = texts(WORKLOADS, "csv")
    (tmp_path / "trace.csv").write_text(trace)
    replayed = Trace(Workload(trace=str(tmp_path / "trace.csv"))).operations(0, 1)
    assert [operation.kind for _, operation in replayed] == ["set", "get", "get"]


def test_the_results_page_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "docs" / "write_results_reference.py"))
    page = (ROOT / "docs" / "reference" / "results.md").read_text()
    assert page == script["page"](), "run scripts/docs/write_results_reference.py"


def test_the_metrics_page_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "docs" / "write_metrics_reference.py"))
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert page == script["page"](), "run scripts/docs/write_metrics_reference.py"
    for metric in (*METRICS, *PROXY_METRICS, *EXPORTER_METRICS):
        assert f"| `{metric.name}` | {metric.kind} |" in page


def test_emulator_latencies_on_the_page_about_reading_figures() -> None:
    page = (ROOT / "docs" / "reading-the-figures.md").read_text()
    assert (READ_LATENCY, WRITE_LATENCY) == (
        "lognormal:median=15ms,p99=60ms",
        "lognormal:median=30ms,p99=120ms",
    )
    assert "reads 15 ms in the median and 60 ms for p99, writes 30 and 120" in page


def test_links_are_not_broken() -> None:
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_scripts_named_in_the_readme_are_executable() -> None:
    for script in re.findall(r"\./scripts/(\w+)", (ROOT / "README.md").read_text()):
        assert (ROOT / "scripts" / script).stat().st_mode & 0o111


def test_the_examples_in_the_file_format_page_can_be_loaded(tmp_path: Path) -> None:
    page = ROOT / "docs" / "reference" / "file-format.md"
    snapshot, journal = texts(page, "json")
    (tmp_path / "cache.json").write_text(snapshot)
    (tmp_path / "cache.json.journal.3").write_text(journal)
    loaded = load_files(tmp_path / "cache.json")
    assert {key: (item.value, item.version) for key, item in loaded.items.items()} == {
        b"user:1": (b"Ada", 12),
        b"user:2": (b"Grace", 18),
    }
    assert (loaded.version, loaded.flush_at) == (20, 1_795_000_060)


@pytest.mark.slow
def test_the_backend_page_shows_the_tested_package(tmp_path: Path) -> None:
    backend, tests = texts(ROOT / "docs" / "how-to" / "write-a-backend.md", "python")
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
    (settings,) = texts(page, "ini")
    (tmp_path / "pytest.ini").write_text(settings)
    (greeting,) = (text for text in texts(ROOT / "README.md", "python") if "(memlite)" in text)
    for number, text in enumerate([greeting, *texts(page, "python")]):
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
            [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        for text in texts(page, "python")
    )
    assert re.fullmatch(r"serving on 127\.0\.0\.1:\d+\nSTORED\n", first)
    assert second == "True True\n"
    text = page.read_text()
    assert set(re.findall(r"`(\w+)`", text.partition("- `daemon`")[2])) <= set(OF_THE_PROCESS)


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


def test_figures_on_the_pages_about_security() -> None:
    tls = (HOW_TO / "use-tls.md").read_text()
    assert f"closed after {HANDSHAKE_SECONDS:g} seconds" in tls
    passwords = (HOW_TO / "require-passwords.md").read_text()
    assert f"`--auth-timeout` ({Config().auth_timeout} seconds)" in passwords
    limits = (throttle.FAILURES, throttle.PATIENCE, 1 / throttle.SECONDS_EACH, throttle.ADDRESSES)
    assert limits == (20, 5, 2, 10_000)
    assert (MAX_FILE_SIZE, TOKEN_LENGTH) == (64 * 1024, 16 * 1024)


def test_every_page_is_listed() -> None:
    def linked(index: Path) -> set[Path]:
        targets = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", index.read_text())
        return {(index.parent / target).resolve() for target in targets}

    docs, decisions = ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md"
    pages = {page for page in PAGES if page not in (docs, ROOT / "README.md")}
    assert pages - linked(docs) == set((ROOT / "docs" / "decisions").glob("0*.md"))
    assert pages - linked(docs) - linked(decisions) == set()
    assert {docs, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"} <= linked(ROOT / "README.md")


def test_the_architecture_page_is_short() -> None:
    """Longer texts belong in a decision record, or as a figure on the page about performance."""
    assert len((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split()) <= 2500


def test_the_readme_is_short() -> None:
    before_the_links, heading, _ = (
        (ROOT / "README.md").read_text().partition("\n## Documentation\n")
    )
    assert heading
    assert len(before_the_links.split()) <= 900


def test_figures_in_the_readme_equal_the_measurements() -> None:
    rows = re.findall(r"(?m)^\| (.+) \|$", (ROOT / "docs" / "performance.md").read_text())
    cells = {row.split(" | ")[0]: row.split(" | ")[1:] for row in rows}
    readme = (ROOT / "README.md").read_text()
    for name in ("10 gets : 1 set, 10,000 keys, unpipelined", "sets only"):
        memcached, ours, *_, compiled = map(float, cells[name])
        assert f"| {ours:.1f} µs; compiled, about {memcached / compiled:.1f} |" in readme
        assert f"| {memcached:.1f} µs |" in readme
    durable = next(row for row in rows if row.startswith("1,000 | `file://`, `always`"))
    assert f"| {durable.split(' | ')[-1]} | – |" in readme


def test_files_named_in_the_documentation_exist() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    files = listed.stdout.splitlines()
    named = re.compile(r"`\.?/?((?:[\w.-]+/)+[\w.-]+\.(?:py|sh|c|h))`")
    for page in PAGES:
        for path in named.findall(page.read_text()):
            assert any(f"/{file}".endswith(f"/{path}") for file in files), f"{page.name}: {path}"


def test_functions_on_the_architecture_page_exist() -> None:
    blocks = texts(ROOT / "docs" / "architecture.md", "text")
    steps = [
        step
        for block in blocks
        for step in re.findall(r"(?m)^ *((?:\w+/)+\w+\.(?:py|c|h))\S*(?: \S+)*  +([\w.]+)", block)
    ]
    assert len(steps) > 40
    for path, name in steps:
        assert (file := ROOT / "memlite" / path).exists(), path
        made = rf"\b{name.rpartition('.')[2]} *[(=:]"
        assert re.search(made, file.read_text(encoding="utf-8")), f"{path}: {name}"
