"""The options in a ``valkey://`` URL."""

import ssl

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends.registry import parse_url
from memlite.backends.valkey import Options, parse_options
from memlite.core.errors import ConfigError

SECRET = "s3cret"


def parsed(text, **environment):
    return parse_options(parse_url(text), environment)


def test_only_a_host():
    assert parsed("valkey://db") == Options("db")
    assert parsed("valkey://db").shown == "valkey://db:6379/memlite"


def test_everything():
    text = "redis://me@[::1]:7000/a/b?timeout=1&deadline=9&concurrency=8&cluster=0&db=3"
    options = parsed(text, MEMLITE_VALKEY_PASSWORD=SECRET)
    assert options == Options(
        "::1", 7000, "a/b", "redis", "me", SECRET, None, 1.0, 9.0, 8, False, 3, wait_timeout=0.5
    )
    assert options.shown == "redis://[::1]:7000/a/b"


def test_the_password_is_not_shown(tmp_path):
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    options = parsed(f"valkey://db?password_file={file}", MEMLITE_VALKEY_PASSWORD="other")
    assert options.password == SECRET
    assert SECRET not in repr(options)


def test_sentinels(tmp_path):
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    servers = "one,two:7000,[::1]"
    options = parsed(f"valkey://{servers}/p?sentinel=mine&sentinel_password_file={file}")
    assert options.sentinels == (("one", 26379), ("two", 7000), ("::1", 26379))
    assert (options.service, options.sentinel_password) == ("mine", SECRET)
    assert options.shown == "valkey://one:26379,two:7000,[::1]:26379/p"
    assert SECRET not in repr(options)
    named = parsed("valkey://one?sentinel=mine", MEMLITE_VALKEY_SENTINEL_PASSWORD=SECRET)
    assert named.sentinel_password == SECRET


def test_confirmation_by_replicas():
    options = parsed("valkey://db?wait=2&timeout=3")
    assert (options.wait, options.wait_timeout) == (2, 1.5)
    assert parsed("valkey://db?wait=2&wait_timeout=0.1").wait_timeout == 0.1


def test_tls():
    options = parsed("valkeys://db?verify=0")
    assert options.tls.verify_mode == ssl.CERT_NONE
    assert parsed("rediss://db").tls.verify_mode == ssl.CERT_REQUIRED
    of_any_name = parsed("valkeys://db?verify=ca").tls
    assert of_any_name.verify_mode == ssl.CERT_REQUIRED
    assert not of_any_name.check_hostname
    assert parsed("rediss://db").tls.check_hostname


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("valkey://", "must be like valkey://host:6379/prefix"),
        ("valkey://db:x", "must be like"),
        ("valkey://db,?sentinel=m", "must be like"),
        ("valkey://db,other", "several servers require ?sentinel=NAME"),
        ("valkey://db?sentinel=", "sentinel must name the master"),
        ("valkey://db?sentinel=m&cluster=1", "sentinel cannot be combined with cluster"),
        ("valkey://db?sentinel_password_file=/x", "requires sentinel"),
        ("valkey://db?sentinel=m&sentinel_password_file=/nowhere", "/nowhere: No such file"),
        ("valkey://db?wait=1.5", "wait must be a whole number"),
        ("valkey://db?wait=-1", "wait must be"),
        ("valkey://db?wait_timeout=1", "wait_timeout requires wait"),
        ("valkey://db?wait=1&wait_timeout=2", "wait_timeout must be less than timeout"),
        ("valkey://db:0", "must be like"),
        ("valkey://me:s3cret@db", "instead"),
        ("valkey://me@db", "no password in MEMLITE_VALKEY_PASSWORD"),
        ("valkey://db?password_file=/nowhere", "password_file /nowhere: No such file"),
        ("valkey://db/a:b", "no spaces, colons or braces"),
        ("valkey://db/%7Bx%7D", "no spaces, colons or braces"),
        ("valkey://db/" + "a" * 201, "200 bytes"),
        ("valkey://db?ca_cert=x", "requires valkeys:// or rediss://"),
        ("valkeys://db?ca_cert=/nowhere", "ca_cert: /nowhere: No such file"),
        ("valkeys://db?key=x", "key requires cert"),
        ("valkey://db?timeout=0", "timeout must be a number from 0.05 to 600"),
        ("valkey://db?timeout=3&deadline=2", "deadline must not be less"),
        ("valkey://db?concurrency=1.5", "a whole number"),
        ("valkey://db?cluster=yes", "cluster must be 0 or 1"),
        ("valkey://db?cluster=1&db=1", "supports only db 0"),
        ("valkey://db?waits=1", "unknown option 'waits'"),
    ],
)
def test_invalid_options(text, says):
    with pytest.raises(ConfigError, match=r"^--backend: ") as error:
        parsed(text)
    assert says in str(error.value)
    assert SECRET not in str(error.value)
