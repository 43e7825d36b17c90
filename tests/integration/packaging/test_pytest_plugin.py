"""The pytest fixtures for other projects, in an environment with pytest and little else."""

import importlib.metadata
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / "hatch_build.py").exists(),
        reason="the tests run on an installed wheel, without a checkout",
    ),
]
# The packages that a project needs to use the fixtures, with dependencies.
INSTALLED = (
    "pytest", "pluggy", "iniconfig", "packaging", "pygments", "pytest-xdist", "execnet",
    "pymemcache", "uvloop", "orjson",
)  # fmt: skip

PROJECT = """
import os
from pathlib import Path

import pytest

def test_it_is_a_server(memlite, memlite_server):
    assert (memlite.host, memlite.port) == memlite.address == memlite_server.address
    assert memlite.client.version().endswith(b"-memlite-0.1.0")
    Path(os.environ["SEEN"], f"{memlite.port}").touch()

@pytest.mark.parametrize("number", range(4))
def test_each_finds_it_empty(memlite, number):
    assert memlite.client.get("key") is None
    assert memlite.client.set("key", "value", expire=50)
    assert memlite.client.get("key") == b"value"
    memlite.advance(60)
    assert memlite.client.get("key") is None
    assert memlite.client.set("key", "value")
    Path(os.environ["SEEN"], f"{memlite.port}").touch()
"""

GONE = """
def test_it(memlite_server, request):
    memlite_server.stop()
    request.getfixturevalue("memlite")
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with memlite and the packages above installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in INSTALLED:
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(distribution.locate_file(top))
    build = f"import hatchling.build; hatchling.build.build_wheel({str(folder)!r})"
    environment = {name: text for name, text in os.environ.items() if name != "MEMLITE_COMPILED"}
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, env=environment, check=True, timeout=60)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    return folder / "bin" / "python"


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Run:
    """Return a function that runs pytest on files, given by their names without ``.py``."""

    def run(*arguments: str, ini: str = "", **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}")
        (tmp_path / "seen").mkdir(exist_ok=True)
        return subprocess.run(
            [python, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "SEEN": str(tmp_path / "seen"),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            timeout=100,
        )

    return run


def passed(run: subprocess.CompletedProcess[str], count: int) -> bool:
    assert f"{count} passed" in run.stdout, run.stdout + run.stderr
    return run.returncode == 0


def test_a_small_project(run: Run, tmp_path: Path) -> None:
    assert passed(run("-p", "no:xdist", test_it=PROJECT), 5)
    assert len(list((tmp_path / "seen").iterdir())) == 1


def test_a_small_project_in_parallel(run: Run, tmp_path: Path) -> None:
    """Each worker has its own server, and with a file backend its own file."""
    ini = "memlite_backend = file://{tmp}/cache.json\n"
    assert passed(run("-n", "2", "--dist", "each", ini=ini, test_it=PROJECT), 10)
    assert len(list((tmp_path / "seen").iterdir())) == 2


def test_options_from_the_command_line_and_the_settings_file(run: Run, tmp_path: Path) -> None:
    Authority(tmp_path).issue("server")
    project = """
        def test_it(memlite, memlite_server):
            assert memlite_server.process.args[-5:] == "-m 100 -vv --conn-limit 77".split()
            assert memlite.client.stats()[b"max_connections"] == 77
            assert memlite.client.stats("backend")[b"url"].startswith(b"file://")
            assert memlite.tls is not None
        """
    ini = (
        "memlite_args = -m 100 -vv\nmemlite_backend = memory://\n"
        "memlite_tls_cert = server.pem\nmemlite_tls_key = server-key.pem\nmemlite_tls_ca = ca.pem\n"
    )
    options = ("--memlite-args=--conn-limit 77", "--memlite-backend=file://{tmp}/cache.json")
    assert passed(run(*options, ini=ini, test_it=project.replace("\n        ", "\n")), 1)


def test_test_suites_that_do_not_use_it_import_nothing(run: Run) -> None:
    project = """
def test_it():
    import sys
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "memlite")
    assert loaded == [
        "memlite", "memlite.core", "memlite.core.version", "memlite.testing",
        "memlite.testing.pytest_plugin",
    ]
    assert not {"asyncio", "uvloop", "ssl", "pymemcache"} & set(sys.modules)
"""
    assert passed(run("-p", "no:xdist", test_it=project), 1)


@pytest.mark.parametrize(
    ("arguments", "project", "message"),
    [
        (
            (),
            "import sys; sys.modules['pymemcache'] = None\ndef test_it(memlite): memlite.client",
            "memlite.client needs pymemcache: pip install pymemcache",
        ),
        (
            ("--memlite-args=-m 0",),
            "def test_it(memlite): pass",
            "memlite: -m: must be at least 1, not 0",
        ),
        (
            ("--memlite-args=-F",),
            "def test_it(memlite): pass",
            "memlite: flush_all: CLIENT_ERROR flush_all not allowed",
        ),
        (
            (),
            GONE,
            "memlite: flush_all: [Errno 111] Connection refused",
        ),
    ],
    ids=["no client", "wrong option", "no flush", "gone"],
)
def test_error_messages(run: Run, arguments: tuple[str, ...], project: str, message: str) -> None:
    result = run("-p", "no:xdist", *arguments, test_it=project)
    assert result.returncode == 1
    assert message in result.stdout


def test_options_are_in_pytests_help(run: Run) -> None:
    shown = run("--help", "-p", "no:xdist").stdout
    for option in ("--memlite-backend", "--memlite-args", "memlite_tls_cert"):
        assert option in shown
    fixtures = run("--fixtures", "-p", "no:xdist", test_it="").stdout
    assert "memlite_server [session scope]" in fixtures
