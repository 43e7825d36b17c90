"""Starts with a store that cannot be used, and with one that needs TLS and a user."""

import logging

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends import Record
from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import make
from memlite.core.errors import StartError
from tests.support.certificates import Authority
from tests.support.ports import unused_port
from tests.support.stores import MASTER, has_tls, sentinel, store

SECRET = "s3cret"


async def refusal(url):
    backend = make(parse_url(url), Context())
    with pytest.raises(StartError) as error:
        await backend.open()
    text = str(error.value)
    assert text.startswith("--backend: valkey")
    assert SECRET not in text
    assert "\n" not in text
    return text


async def test_no_server_listens():
    text = await refusal(f"valkey://127.0.0.1:{unused_port()}/p?timeout=1&deadline=1")
    assert "no answer (cannot connect: Connection refused); check address and network" in text


async def test_passwords_and_users(monkeypatch):
    with store("--requirepass", SECRET) as server:
        url = f"valkey://127.0.0.1:{server.port}/p"
        assert "it requires a password; set MEMLITE_VALKEY_PASSWORD" in await refusal(url)
        monkeypatch.setenv("MEMLITE_VALKEY_PASSWORD", "wrong")
        assert "wrong password for the default user, or no such user" in await refusal(url)
        me = url.replace("//", "//me@")
        assert "wrong password for me, or no such user" in await refusal(me)
        monkeypatch.setenv("MEMLITE_VALKEY_PASSWORD", SECRET)
        backend = make(parse_url(url), Context())
        await backend.open()
        await backend.put(Record(b"k", b"v"))
        await backend.close()


async def test_a_password_for_a_store_without(monkeypatch):
    monkeypatch.setenv("MEMLITE_VALKEY_PASSWORD", SECRET)
    with store() as server:
        text = await refusal(f"valkey://127.0.0.1:{server.port}/p")
        assert "it requires no password; unset MEMLITE_VALKEY_PASSWORD" in text


async def test_a_user_with_few_rights(monkeypatch):
    monkeypatch.setenv("MEMLITE_VALKEY_PASSWORD", SECRET)
    rights = f"me on >{SECRET} ~p:* ~p/*"
    with store("--user", *f"{rights} +get +set +ping +info +del".split()) as server:
        text = await refusal(f"valkey://me@127.0.0.1:{server.port}/p")
        assert "not permitted: EVAL; the user needs ~p:* ~p/* +get" in text
        needed = text.partition("the user needs ~p:* ~p/* ")[2]
    with store("--user", *f"{rights} {needed}".split()) as server:
        backend = make(parse_url(f"valkey://me@127.0.0.1:{server.port}/p"), Context())
        await backend.open()
        await backend.put(Record(b"k", b"1"))
        await backend.put(Record(b"k", b"2"), await backend.get(b"k"))
        assert [record.value async for record in backend.scan()] == [b"2"]
        await backend.flush()
        await backend.close()


@pytest.mark.skipif(not has_tls(), reason="the store was built without TLS, or there is none")
async def test_tls(tmp_path):
    authority = Authority(tmp_path)
    made = authority.issue("server")
    port = unused_port()
    files = {"cert": made.cert, "key": made.key, "ca-cert": authority.path}
    options = [text for kind, file in files.items() for text in (f"--tls-{kind}-file", str(file))]
    with store("--tls-port", str(port), "--tls-auth-clients", "no", *options):
        url = f"valkeys://127.0.0.1:{port}/p"
        assert "no answer (cannot connect: " in await refusal(url)
        backend = make(parse_url(f"{url}?ca_cert={authority.path}"), Context())
        await backend.open()
        await backend.put(Record(b"k", b"v"))
        assert (await backend.get(b"k")).value == b"v"
        await backend.close()


async def test_a_cluster_that_is_down():
    with store("--cluster-enabled", "yes", "--cluster-port", str(unused_port())) as server:
        text = await refusal(f"valkey://127.0.0.1:{server.port}/p")
        assert "the cluster is down: only 0 of 16384 slots are served" in text


async def test_a_single_server_configured_as_a_cluster():
    with store() as server:
        text = await refusal(f"valkey://127.0.0.1:{server.port}/p?cluster=1")
        assert "cannot query the cluster's slots" in text


async def test_settings_that_lose_items(caplog):
    options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with store(*options) as server, caplog.at_level(logging.WARNING):
        backend = make(parse_url(f"valkey://127.0.0.1:{server.port}/p"), Context())
        await backend.open()
        await backend.close()
    assert "maxmemory-policy is allkeys-lru" in caplog.text
    assert "and forget flushes" in caplog.text
    assert "no append-only file and no replica" in caplog.text


async def test_sentinels(monkeypatch):
    with store("--requirepass", SECRET) as server, sentinel(server, password=SECRET) as watching:
        url = f"valkey://127.0.0.1:{watching.port}/p?sentinel="
        text = await refusal(f"{url}{MASTER}")
        assert "the Sentinel requires a password; set MEMLITE_VALKEY_SENTINEL_PASSWORD" in text
        monkeypatch.setenv("MEMLITE_VALKEY_SENTINEL_PASSWORD", "wrong")
        assert "the Sentinel's password is wrong" in await refusal(f"{url}{MASTER}")
        monkeypatch.setenv("MEMLITE_VALKEY_SENTINEL_PASSWORD", SECRET)
        text = await refusal(f"{url}other")
        assert "cannot find the master: the Sentinel monitors no master named 'other'" in text
        text = await refusal(f"{url}{MASTER}")
        assert "it requires a password; set MEMLITE_VALKEY_PASSWORD" in text
        monkeypatch.setenv("MEMLITE_VALKEY_PASSWORD", SECRET)
        backend = make(parse_url(f"{url}{MASTER}"), Context())
        await backend.open()
        await backend.put(Record(b"k", b"v"))
        await backend.close()


async def test_a_user_who_may_not_ask_for_the_role(monkeypatch):
    monkeypatch.setenv("MEMLITE_VALKEY_PASSWORD", SECRET)
    rights = f"me on >{SECRET} ~p:* ~p/* +@all -role".split()
    with store("--user", *rights) as server, sentinel(server) as watching:
        text = await refusal(f"valkey://me@127.0.0.1:{watching.port}/p?sentinel={MASTER}")
    assert "not permitted: ROLE; the user needs ~p:* ~p/* +get" in text
    assert text.endswith(" +role")


async def test_a_server_that_is_not_a_sentinel():
    with store() as server:
        text = await refusal(f"valkey://127.0.0.1:{server.port}/p?sentinel={MASTER}")
        assert "cannot find the master: unknown command" in text
