"""Server addresses in the forms that users write."""

import pytest

from memlite.client import Address, parse_address
from memlite.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("cache", Address("cache", 11211)),
        ("cache:1", Address("cache", 1)),
        ("[::1]:1", Address("::1", 1)),
        ("[::1]", Address("::1", 11211)),
        ("::1", Address("::1", 11211)),
        ("/run/socket", Address("", 0, "/run/socket")),
        ("./socket", Address("", 0, "./socket")),
        ("unix:/run/socket", Address("", 0, "/run/socket")),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address
    if not text.startswith(("./", "unix:")):
        assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":", ":1", "a:0", "a:65536", "a:x", "a b:1", "a\x1b[:1"])
def test_invalid_addresses(text):
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("text", ["cache", "[::1]", "::1", "cache:", ""])
def test_a_port_may_be_required(text):
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        parse_address(text, default_port=None)
    assert parse_address("[::1]:1", default_port=None) == Address("::1", 1)


def test_addresses_of_sockets():
    assert Address.of(("cache", 1)) == Address("cache", 1)
    assert Address.of("/run/socket") == Address("", 0, "/run/socket")
