"""TLS: real servers and clients on both event loops, and the real memcached."""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pymemcache.client.base import Client

from tests.support.certificates import Authority, Issued, client_context, common_name
from tests.support.ports import unused_port
from tests.support.program import run_forked as run
from tests.support.servers import (
    RunningServer,
    Wire,
    memcached_has_tls,
    memcached_version,
    running,
)
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]
MEGABYTE = 1024 * 1024
OURS = ("memlite", "memlite-asyncio")
needs_tls_memcached = pytest.mark.skipif(
    not memcached_has_tls(),
    reason="no memcached to compare with, or it was built without TLS",
)
ALL = [*OURS, pytest.param("memcached", marks=needs_tls_memcached)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def served(authority: Authority) -> Issued:
    return authority.issue("server")


@pytest.fixture(scope="module")
def known(authority: Authority) -> Issued:
    return authority.issue("client")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger-ca").issue("stranger")


@pytest.fixture(scope="module", params=ALL)
def server(request: pytest.FixtureRequest, served: Issued) -> Iterator[RunningServer]:
    with running(request.param, *served.flags, tls=client_context(served.ca)) as server:
        yield server


def version_over(context: ssl.SSLContext, port: int) -> str:
    """Return the outcome of a connection: ``VERSION``, or ``refused``."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        try:
            with context.wrap_socket(sock, server_hostname="127.0.0.1") as encrypted:
                encrypted.sendall(b"version\r\n")
                return encrypted.recv(100).split(b" ")[0].decode() or "refused"
        except (ssl.SSLError, ConnectionError):  # with TLS 1.3, a client learns of a refusal late
            return "refused"


# Connections


def test_values_of_all_sizes_and_pipelines(server: RunningServer) -> None:
    with server.connect(60) as wire:
        for size in (0, 1, 16_383, 16_384, 16_385, 70_000, MEGABYTE - 100):
            value = os.urandom(size)
            assert wire.ask(b"set k 0 0 %d\r\n%b\r\n" % (size, value)) == b"STORED\r\n"
            expected = b"VALUE k 0 %d\r\n%b\r\nEND\r\n" % (size, value)
            wire.send(b"get k\r\n")
            assert wire.exactly(len(expected)) == expected
        wire.send(b"set a 0 0 1\r\n1\r\n" + b"get a\r\n" * 3000)
        expected = b"STORED\r\n" + b"VALUE a 0 1\r\n1\r\nEND\r\n" * 3000
        assert wire.exactly(len(expected)) == expected


def test_replies_larger_than_buffers(server: RunningServer) -> None:
    with server.connect(60) as wire:
        wire.send(b"set k 0 0 900000\r\n" + b"v" * 900_000 + b"\r\n")
        assert wire.line() == b"STORED\r\n"
        wire.send(b"get k k k k k k k k k k\r\n" * 3)
        reply = b"VALUE k 0 900000\r\n" + b"v" * 900_000 + b"\r\n"
        expected = (reply * 10 + b"END\r\n") * 3
        assert wire.exactly(len(expected)) == expected


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_supported_versions(server: RunningServer, served: Issued, version: ssl.TLSVersion) -> None:
    context = client_context(served.ca)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "memcached"])
    with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
        encrypted = context.wrap_socket(sock, server_hostname="127.0.0.1")
        assert encrypted.version() == version.name.replace("_", ".")
        assert encrypted.selected_alpn_protocol() is None
        assert encrypted.compression() is None
        encrypted.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_older_versions_are_refused_with_an_alert(server: RunningServer, served: Issued) -> None:
    context = client_context(served.ca)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", server.port), 60) as sock,
        pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"),
    ):
        context.wrap_socket(sock, server_hostname="127.0.0.1")


@pytest.mark.parametrize("kind", ALL)
def test_the_minimum_version_and_ciphers_can_be_set(
    start: Start, served: Issued, kind: str
) -> None:
    context = client_context(served.ca)
    server = start(*served.flags, "-o", "ssl_min_version=3", kind=kind, tls=context)
    context = client_context(served.ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert version_over(context, server.port) == "refused"
    cipher = "ECDHE-ECDSA-AES128-GCM-SHA256"
    other = start(*served.flags, "-o", f"ssl_ciphers={cipher}", kind=kind, tls=context)
    with other.connect() as wire:
        assert wire.sock.cipher()[0] == cipher  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("kind", ALL)
def test_sessions_are_resumed(
    start: Start, served: Issued, kind: str, version: ssl.TLSVersion
) -> None:
    context = client_context(served.ca)
    context.minimum_version = context.maximum_version = version
    for options in ([], ["-o", "ssl_session_cache"]):
        server = start(*served.flags, *options, kind=kind, tls=context)
        with server.connect() as wire:
            before = wire.stats()
            session = wire.sock.session  # type: ignore[attr-defined]
        with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
            encrypted = context.wrap_socket(sock, server_hostname="127.0.0.1", session=session)
            assert encrypted.session_reused
            after = Wire(encrypted).stats()
            encrypted.close()
        assert ("ssl_new_sessions" in after) == bool(options)
        if options and kind != "memcached":  # counts tickets, two for each connection with TLS 1.3
            assert before["ssl_new_sessions"] == after["ssl_new_sessions"] == "2"


def test_pymemcache(server: RunningServer, served: Issued) -> None:
    client = Client(("127.0.0.1", server.port), tls_context=client_context(served.ca), timeout=60)
    with contextlib.closing(client):
        assert client.set("greeting", b"hello", noreply=False)
        assert client.get("greeting") == b"hello"
        assert client.set_many({f"k{n}": b"%d" % n for n in range(300)}) == []
        assert len(client.get_many([f"k{n}" for n in range(300)])) == 300


# Clients' certificates


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ALL)
def test_modes(
    start: Start, served: Issued, known: Issued, stranger: Issued, kind: str, mode: int
) -> None:
    server = start(
        *served.flags, "-o", f"ssl_verify_mode={mode},ssl_ca_cert={served.ca}",
        kind=kind, tls=client_context(served.ca, known),
    )  # fmt: skip
    found = [
        version_over(client_context(served.ca, one), server.port) for one in (None, known, stranger)
    ]
    anybody, required = mode == 0, mode >= 2
    assert found == [
        "refused" if required else "VERSION", "VERSION", "VERSION" if anybody else "refused",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_prefixes_of_addresses(start: Start, served: Issued, known: Issued, kind: str) -> None:
    if kind == "memcached" and memcached_version() < (1, 6, 45):
        pytest.skip("before 1.6.45 memcached does not have all prefixes")
    server = start(
        *served.flags, "-o", f"ssl_verify_mode=1,ssl_ca_cert={served.ca}",
        "-l", "notls:127.0.0.1:0,btls:127.0.0.1:0", "-l", "mtls:127.0.0.1:0",
        kind=kind, tls=client_context(served.ca),
    )  # fmt: skip
    notls, btls, mtls = server.further_ports
    with socket.create_connection(("127.0.0.1", notls), 60) as sock:
        assert Wire(sock).ask(b"version\r\n").startswith(b"VERSION ")
    without, with_one = client_context(served.ca), client_context(served.ca, known)
    for port, expected in ((server.port, "VERSION"), (btls, "VERSION"), (mtls, "refused")):
        assert version_over(without, port) == expected
        assert version_over(with_one, port) == "VERSION"


@pytest.mark.parametrize("kind", ALL)
def test_unix_sockets_do_not_use_tls(start: Start, served: Issued, kind: str) -> None:
    server = start(*served.flags, unix=True, kind=kind)
    with server.connect() as wire:
        assert wire.ask(b"version\r\n").startswith(b"VERSION ")


def test_warnings_about_access_are_logged(served: Issued) -> None:
    for options, says in (
        (["-l", "mtls:127.0.0.1:0"], "no client can connect to 127.0.0.1"),
        (["-l", "0.0.0.0:0"], "without authentication"),
        (["-l", "mtls:0.0.0.0:0", "-o", f"ssl_ca_cert={served.ca}"], ""),
        (["-U", "-1"], "-U: datagrams are not encrypted, even with -Z"),
    ):
        with running("memlite", *served.flags, *options, tls=client_context(served.ca)) as server:
            log = server.log.read_text()
            assert says in log if says else log == ""


# Reloading certificates


def replace(issued: Issued, by: Issued) -> None:
    shutil.copy(by.cert, issued.cert)
    shutil.copy(by.key, issued.key)


@pytest.mark.parametrize("kind", ALL)
def test_certificates_are_reloaded(start: Start, tmp_path: Path, kind: str) -> None:
    authority = Authority(tmp_path)
    served, renewed = authority.issue("old"), authority.issue("new")
    server = start(*served.flags, kind=kind, tls=client_context(authority.path))

    def shown() -> str:
        with server.connect() as wire:
            return common_name(wire.sock)  # type: ignore[arg-type]

    with server.connect() as wire:
        assert wire.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        old = tmp_path / "kept"
        old.mkdir()
        kept = Issued("kept", old / "cert.pem", old / "key.pem", authority.path)
        replace(kept, served)
        replace(served, renewed)
        assert shown() == "old"
        assert wire.ask(b"refresh_certs\r\n") == b"OK\r\n"
        assert shown() == "new"
        replace(served, kept)
        # memcached has only the command.
        if kind == "memcached" and memcached_version() < (1, 6, 45):
            assert wire.ask(b"refresh_certs\r\n") == b"OK\r\n"
        else:
            server.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: shown() == "old")
        served.cert.write_text("nonsense")
        reply = wire.ask(b"refresh_certs\r\n")
        assert reply.startswith(b"Error loading the certificate chain: %b : " % bytes(served.cert))
        if kind != "memcached":  # the old certificate is in use, and by chance the old key
            assert shown() == "old"
            server.process.send_signal(signal.SIGHUP)
            assert wait_until(lambda: "certificates not reloaded" in server.log.read_text())
            assert shown() == "old"
            replace(served, renewed)
            shutil.copy(kept.key, served.key)
            assert wire.ask(b"refresh_certs\r\n") == (
                b"Error loading the key: %b : key values mismatch\r\n" % bytes(served.key)
            )
            assert shown() == "old"
        # The first connection has stayed open all the time.
        wire.send(b"get a\r\n")
        assert wire.exactly(21) == b"VALUE a 0 1\r\n1\r\nEND\r\n"[:21]


def test_a_daemon_resolves_relative_paths(served: Issued, tmp_path: Path) -> None:
    shutil.copy(served.cert, tmp_path / "cert.pem")
    shutil.copy(served.key, tmp_path / "key.pem")
    port = unused_port()
    arguments = ["-d", "-P", "pid", "-l", f"127.0.0.1:{port}", "-Z",
                 "-o", "ssl_chain_cert=cert.pem,ssl_key=key.pem"]  # fmt: skip
    result = subprocess.run(
        [sys.executable, "-m", "memlite", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        timeout=60,
        check=False,
    )
    assert result.returncode == 0
    try:
        with socket.create_connection(("127.0.0.1", port), 60) as sock:
            wire = Wire(client_context(served.ca).wrap_socket(sock, server_hostname="localhost"))
            assert wire.ask(b"refresh_certs\r\n") == b"OK\r\n"
            wire.sock.close()
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)


@pytest.mark.parametrize("kind", [*OURS])
def test_refresh_certs_without_tls_is_an_error(start: Start, kind: str) -> None:
    assert start(kind=kind).ask(b"refresh_certs\r\n") == b"Error TLS not enabled\r\n"


def test_invalid_certificate_files(authority: Authority, served: Issued, tmp_path: Path) -> None:
    other, locked = authority.issue("other"), authority.issue("locked", b"secret")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    for options, says in (
        ("ssl_key=x", "-Z: TLS needs a certificate: -o ssl_chain_cert=FILE"),
        ("ssl_chain_cert=/nowhere", "the certificate chain: /nowhere : No such file or directory"),
        (f"ssl_chain_cert={tmp_path}", f"Error loading the certificate chain: {tmp_path} : "),
        (f"ssl_chain_cert={nonsense}", f"Error loading the certificate chain: {nonsense} : "),
        (f"ssl_chain_cert={served.cert}", f"Error loading the key: {served.cert} : "),
        (f"ssl_chain_cert={served.cert},ssl_key=/nowhere", "Error loading the key: /nowhere : No"),
        (f"ssl_chain_cert={served.cert},ssl_key={nonsense}", f"the key: {nonsense} : "),
        (f"ssl_chain_cert={served.cert},ssl_key={other.key}", "key values mismatch"),
        (f"ssl_chain_cert={locked.cert},ssl_key={locked.key}", "it is encrypted"),
        (f"ssl_chain_cert={served.cert},ssl_key={served.key},ssl_ca_cert={nonsense}",
         f"Error loading the CA certificate: {nonsense} : "),
        (f"ssl_chain_cert={served.cert},ssl_key={served.key},ssl_ciphers=none-such",
         "Error setting the provided cipher(s): none-such"),
    ):  # fmt: skip
        result = run("-Z", "-p", "0", "-o", options)
        assert result.returncode == 64, options
        assert result.stderr.startswith("memlite: ")
        assert result.stderr.count("\n") == 1, result.stderr
        assert says in result.stderr


def test_key_and_certificate_in_one_file(start: Start, served: Issued, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(served.key.read_bytes() + served.cert.read_bytes())
    server = start("-Z", "-o", f"ssl_chain_cert={both}", tls=client_context(served.ca))
    assert version_over(client_context(served.ca), server.port) == "VERSION"


# Statistics


@needs_tls_memcached
@pytest.mark.parametrize(
    "options", ["ssl_wbuf_size=64", "ssl_session_cache,ssl_kernel_tls,ssl_min_version=3",
                "ssl_verify_mode=1,ssl_ciphers=HIGH", "ssl_verify_mode=2", "ssl_verify_mode=3"],
)  # fmt: skip
def test_settings_have_the_same_fields_as_memcacheds(
    start: Start, served: Issued, known: Issued, options: str
) -> None:
    context = client_context(served.ca, known)
    found = []
    for kind in ("memlite", "memcached"):
        server = start(
            *served.flags, "-o", f"{options},ssl_ca_cert={served.ca}", kind=kind, tls=context
        )
        settings, general = server.stats("settings"), server.stats()
        tls = [(key, value) for key, value in settings.items() if key.startswith("ssl_")]
        names = [key for key in general if key.startswith(("ssl_", "time_since_server_cert"))]
        if memcached_version() < (1, 6, 45):  # Debian's memcached does not have it yet
            names = [name for name in names if name != "ssl_proto_errors"]
        following = list(general)[list(general).index(names[-1]) + 1]
        found.append((tls, names, following))
    assert found[0] == found[1]
    assert len(found[0][0]) == 11


def test_settings_without_tls(memlite: RunningServer) -> None:
    settings = memlite.stats("settings")
    assert settings["ssl_enabled"] == "no"
    assert settings["ssl_chain_cert"] == settings["ssl_key"] == "(null)"
    assert not any(key.startswith("ssl_") for key in memlite.stats())


def test_time_since_the_certificates_were_loaded(start: Start, served: Issued) -> None:
    server = start(*served.flags, "--debug-commands", tls=client_context(served.ca))
    with server.connect() as wire:
        wire.ask(b"debugtime 1000\r\n")
        assert 1000 <= int(wire.stats()["time_since_server_cert_refresh"]) < 1100
        wire.ask(b"refresh_certs\r\n")
        assert int(wire.stats()["time_since_server_cert_refresh"]) < 100
