"""The options in a gs:// URL, and the refusal of invalid ones."""

from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

from memlite.backends.gcs import Options, make, parse_options
from memlite.backends.registry import Context, parse_url
from memlite.core.errors import ConfigError


def options(text, **environment):
    return parse_options(parse_url(text), environment)


def test_defaults():
    assert options("gs://bucket") == Options("bucket")
    assert options("gcs://bucket/") == Options("bucket")
    assert not Options("bucket").anonymous


@pytest.mark.parametrize("path", ["a/b", "a/b/", "/a/b"])
def test_a_prefix_is_a_folder(path):
    assert options(f"gs://bucket/{path}").prefix == "a/b/"


def test_all_options():
    text = "gs://b-1.example/p?timeout=0.5&deadline=9&concurrency=8&project=x&endpoint=http://h:1/"
    assert options(text) == Options("b-1.example", "p/", "http://h:1", 0.5, 9.0, 8, "x")


def test_the_deadline_is_no_less_than_a_timeout():
    assert options("gs://bucket?timeout=30").deadline == 30


@pytest.mark.parametrize(
    ("variable", "endpoint"),
    [
        ("localhost:4443", "http://localhost:4443"),
        ("http://[::1]:4443", "http://[::1]:4443"),
        ("https://proxy", "https://proxy"),
        ("", "https://storage.googleapis.com"),
    ],
)
def test_the_emulators_variable(variable, endpoint):
    found = options("gs://bucket", STORAGE_EMULATOR_HOST=variable)
    assert found.endpoint == endpoint
    # A token must not go over the wire in plain text.
    assert found.anonymous == endpoint.startswith("http://")


def test_the_url_takes_precedence_over_the_variable():
    found = options("gs://bucket?endpoint=http://a:1", STORAGE_EMULATOR_HOST="b:2")
    assert found.endpoint == "http://a:1"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gs://", "invalid bucket name"),
        ("gs://Bucket", "invalid bucket name"),
        ("gs://b", "invalid bucket name"),
        ("gs://user@bucket", "invalid bucket name"),
        ("gs://bucket?time=1", "unknown option 'time'"),
        ("gs://bucket?timeout=0", "timeout must be a number from 0.05 to 600, not '0'"),
        ("gs://bucket?timeout=x", "timeout must be a number"),
        ("gs://bucket?timeout=nan", "timeout must be a number"),
        ("gs://bucket?timeout=5&deadline=4", "deadline must not be less than timeout"),
        ("gs://bucket?concurrency=1.5", "concurrency must be a whole number"),
        ("gs://bucket?concurrency=0", "concurrency must be a number from 1"),
        ("gs://bucket?endpoint=localhost:4443", "endpoint must be like http://127.0.0.1:4443"),
        ("gs://bucket?endpoint=http://h/storage/v1", "endpoint must be like"),
        ("gs://bucket?endpoint=http://h:x", "endpoint must be like"),
        ("gs://bucket/a//b", "invalid prefix"),
        ("gs://bucket/a/../b", "invalid prefix"),
        ("gs://bucket/a%0Ab", "invalid prefix"),
        (f"gs://bucket/{'a' * 601}", "the prefix must not exceed 600 bytes"),
    ],
)
def test_invalid_urls_are_refused(text, complaint):
    with pytest.raises(ConfigError) as caught:
        options(text)
    message = str(caught.value)
    assert complaint in message
    assert message.startswith("--backend: ")
    assert "\n" not in message


def test_the_reference_names_every_option_and_statistic():
    page = (Path(__file__).parents[4] / "docs" / "reference" / "gcs.md").read_text()
    for field in fields(Options):
        if field.name not in ("bucket", "prefix"):
            assert f"| `{field.name}` | " in page
    for name in make(parse_url("gs://bucket"), Context()).stats():
        assert f"`{name}`" in page
