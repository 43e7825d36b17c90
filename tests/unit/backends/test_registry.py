"""Backends by URL."""

import subprocess
import sys
from pathlib import Path

import pytest

from memlite.backends import registry
from memlite.backends.jsonfile import FileBackend
from memlite.backends.memory import MemoryBackend
from memlite.backends.registry import Context, make_backend, parse_url
from memlite.core.errors import ConfigError, StartError

PLUGIN = Path(__file__).parents[2] / "support" / "package_with_backend"


def make(text):
    return make_backend(parse_url(text), Context())


@pytest.mark.parametrize(
    ("text", "host", "path", "options"),
    [
        ("memory://", "", "", {}),
        ("file:///a/b.json", "", "/a/b.json", {}),
        ("FILE:///a%20b/c%3F.json", "", "/a b/c?.json", {}),
        ("gs://bucket/pre/fix?timeout=2&x=", "bucket", "/pre/fix", {"timeout": "2", "x": ""}),
        ("gs://bucket", "bucket", "", {}),
    ],
)
def test_parts(text, host, path, options):
    url = parse_url(text)
    assert url.scheme == text.partition(":")[0].lower()
    assert (url.host, url.path, dict(url.options), url.text) == (host, path, options, text)


@pytest.mark.parametrize(
    "text",
    ["", "memory", "/a/b.json", "file:/a", "a b://", "gs://b?x", "gs://b?a=1&a=2", "gs://b#c"],
)
def test_invalid_urls(text):
    with pytest.raises(ConfigError, match=r"^--backend: "):
        parse_url(text)


def test_built_in_schemes(tmp_path):
    assert isinstance(make("memory://"), MemoryBackend)
    backend = make(f"file://{tmp_path}/cache.json")
    assert isinstance(backend, FileBackend)
    assert backend.path == tmp_path / "cache.json"


def test_a_relative_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make("file://./cache.json").path == tmp_path / "cache.json"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("memory://here", "takes no path"),
        ("memory://?x=1", "unknown option 'x'; it has no options"),
        ("file://", "does not name a file"),
        ("file://host/a.json", "file:///absolute/path"),
        ("file:///", "does not name a file"),
        ("file:///tmp", "is a directory"),
        ("file:///tmp/x.json?compact=many", "compact must be a number"),
        ("file:///tmp/x.json?sync=no", "valid options are compact"),
        (
            "sqlite://localhost",
            "unknown scheme 'sqlite'; known schemes are file://, gcs://, gs://, memory://, redis://",
        ),
    ],
)
def test_backends_that_cannot_be_created(text, says):
    with pytest.raises(ConfigError, match=r"^--backend: ") as error:
        make(text)
    assert says in str(error.value)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(registry._BUILT_IN, "gs", "surely_not_installed.gcs:make")
    with pytest.raises(StartError, match=r"pip install 'memlite-cache\[gcs\]'"):
        make("gs://bucket")


@pytest.fixture
def plugin(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(PLUGIN), *sys.path])


@pytest.mark.usefixtures("plugin")
def test_a_plugin(tmp_path):
    assert type(make(f"sqlite://{tmp_path}/x.db")).__name__ == "SQLiteBackend"


@pytest.mark.usefixtures("plugin")
def test_a_plugin_that_cannot_be_imported():
    with pytest.raises(StartError, match="broken:// of memlite_sqlite_that_is_not_there:make") as e:
        make("broken://")
    assert "ModuleNotFoundError" in str(e.value)


@pytest.mark.usefixtures("plugin")
def test_plugins_are_among_the_known_schemes():
    with pytest.raises(ConfigError, match="rediss://, sqlite://, valkey://"):
        make("other://")


def test_nothing_is_imported_before_it_is_needed():
    code = (
        "import sys, memlite.server.server;"
        "print([n for n in ('memlite.backends.gcs', 'aiohttp', 'google.cloud', 'orjson',"
        " 'memlite.backends.valkey', 'redis')"
        " if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
