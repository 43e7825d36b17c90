"""The parts of redis-py that memlite uses beyond the documented interface."""

import re
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

import redis
from redis.asyncio.connection import Connection, SSLConnection

from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import library, make
from memlite.core.errors import StartError

ROOT = Path(__file__).parents[4]
NEEDED = "redis>=8.0,<9 and hiredis>=3.2"


def test_the_installed_versions_have_these_parts():
    library.check()


@pytest.mark.parametrize("version", [(7, 4, 1), (9, 0, 0), (9, 0, "0b1"), (10, 1, 0)])
async def test_another_version(monkeypatch, version):
    shown = ".".join(map(str, version))
    monkeypatch.setattr(redis, "VERSION", version)
    monkeypatch.setattr(redis, "__version__", shown)
    backend = make(parse_url("valkey://127.0.0.1:1/p"), Context())
    with pytest.raises(StartError) as caught:
        await backend.open()
    text = str(caught.value)
    assert text.startswith(f"--backend: valkey://: redis {shown} with hiredis ")
    assert f"memlite requires {NEEDED}: pip install 'memlite-cache[valkey]'" in text


def test_a_version_with_another_parser(monkeypatch):
    monkeypatch.setattr(Connection, "set_parser", lambda self, kind: setattr(self, "_parser", self))
    with pytest.raises(StartError, match=re.escape(NEEDED)):
        library.check()


def test_a_version_with_another_marker(monkeypatch):
    monkeypatch.setattr(library, "NOT_ENOUGH_DATA", object())
    with pytest.raises(StartError, match=re.escape(NEEDED)):
        library.check()


def test_a_version_with_other_tls(monkeypatch):
    monkeypatch.delattr(SSLConnection, "_connection_arguments")
    monkeypatch.delattr(Connection, "_connection_arguments")
    with pytest.raises(StartError, match=re.escape(NEEDED)):
        library.check()


def test_the_distribution_requires_the_same_versions():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert " and ".join(extras["valkey"]) == NEEDED
