"""Settings as keyword arguments."""

from pathlib import Path

import pytest

from memlite.config import MEGABYTE, Config, ExtendedOptions
from memlite.config.keywords import configure, flags
from memlite.core.errors import ConfigError


def test_without_arguments_all_settings_have_their_defaults():
    assert configure({}) == Config()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"memory_limit": 128}, {"memory_limit": 128}),
        ({"near_cache": "64m"}, {"near_cache": 64 * MEGABYTE}),
        ({"near_cache": 2 * MEGABYTE}, {"near_cache": 2 * MEGABYTE}),
        ({"near_cache_ttl": 1.5}, {"near_cache_ttl": 1.5}),
        ({"unix_socket": Path("/tmp/x")}, {"unix_socket": "/tmp/x"}),
        ({"unix_mask": 0o777}, {"unix_mask": 0o777}),
        ({"listen": "::1"}, {"listen": ("::1",)}),
        ({"listen": ["::1", "127.0.0.1"]}, {"listen": ("::1", "127.0.0.1")}),
        ({"disable_cas": True, "write_back": False}, {"disable_cas": True}),
        ({"verbose": 2}, {"verbose": 2}),
        ({"auth_file": None}, {}),
        ({"port": -1}, {"port": -1}),
        (
            {"extended": {"idle_timeout": 5, "track_sizes": True, "hashpower": None}},
            {"extended": ExtendedOptions({"idle_timeout": "5", "track_sizes": ""})},
        ),
        # One setting implies a value for another.
        ({"auth_file": "x"}, {"auth_file": "x", "protocol": "ascii"}),
    ],
)
def test_values(settings, expected):
    assert configure(settings) == Config(**expected)


def test_other_settings_are_those_of_the_base():
    base = Config(
        port=1, listen=("::1",), unix_mask=0o770, write_back=True, verbose=3, near_cache=MEGABYTE,
        extended=ExtendedOptions({"idle_timeout": "5", "track_sizes": ""}),
    )  # fmt: skip
    assert configure({}, base) == base
    changed = configure({"write_back": False, "port": 2}, base)
    assert (changed.write_back, changed.port, changed.verbose) == (False, 2, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_limt": 1}, "unknown setting 'memory_limt', did you mean 'memory_limit'"),
        ({"memory_limit": 0}, "--memory-limit: must be at least 1, not 0"),
        ({"memory_limit": True}, "memory_limit: needs a value"),
        ({"memory_limit": object()}, "memory_limit: cannot be of type object"),
        ({"disable_cas": "yes"}, "disable_cas: must be True or False"),
        ({"max_item_size": "128m"}, "-I: an item of 134217728 bytes would not fit into -m 64"),
        ({"extended": {"hashpowr": 12}}, "did you mean 'hashpower'"),
    ],
)
def test_invalid_settings_are_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        configure(settings)


def test_flags():
    settings = {"verbose": 2, "memory_limit": 7, "disable_cas": True, "extended": {"modern": True}}
    assert flags(settings) == [
        "--verbose", "--verbose", "--memory-limit=7", "--disable-cas", "--extended=modern",
    ]  # fmt: skip
