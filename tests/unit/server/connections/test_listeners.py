"""Listening sockets: addresses, and errors that prevent a server from starting."""

import errno
import os
import socket
import stat
from functools import partial
from pathlib import Path

import pytest

from memlite.core.errors import ConfigError, StartError
from memlite.server.connections import listeners as sockets
from memlite.server.connections.listeners import (
    address_label,
    is_loopback,
    listen_tcp,
    listen_udp,
    listen_unix,
    parse_address,
    write_ports,
)

BACKLOG = 5


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def listen_on(*, udp):
    return listen_udp if udp else partial(listen_tcp, backlog=BACKLOG)


def resolve_to(monkeypatch, *addresses):
    """Make the name "both" resolve to the addresses."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host, *args, **options):
        hosts = addresses if host == "both" else [host]
        return [found for one in hosts for found in resolve(one, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.fixture
def opened():
    """Provide a list whose listeners are closed after the test."""
    listeners = []
    yield listeners
    for listener in listeners:
        listener.close()


def can_connect(listener):
    with socket.socket(listener.sock.family, socket.SOCK_STREAM) as client:
        return client.connect_ex(listener.sock.getsockname()) == 0


# Addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", ("localhost", 11211)),
        ("localhost:5", ("localhost", 5)),
        ("localhost:", ("localhost", 11211)),
        ("127.0.0.1", ("127.0.0.1", 11211)),
        ("127.0.0.1:65535", ("127.0.0.1", 65535)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("::1", ("::1", 11211)),
        ("::", ("::", 11211)),
        ("fe80::1%eth0", ("fe80::1%eth0", 11211)),
        ("[::1]", ("::1", 11211)),
        ("[::1]:", ("::1", 11211)),
        ("[::1]:5", ("::1", 5)),
        ("*", ("", 11211)),
        ("*:5", ("", 5)),
    ],
)
def test_parse_address(text, address):
    assert parse_address(text, 11211) == address


@pytest.mark.parametrize(
    "text",
    ["", ":", ":5", "[", "[]", "[]:5", "[::1", "[::1]5", "[::1]x:5", "a:x", "a:-1", "a:+1", "a:1.5",
     "a:65536", "a:٣", "a: 5"],
)  # fmt: skip
def test_parse_address_refuses(text):
    with pytest.raises(ConfigError, match=r"^-l: ") as error:
        parse_address(text, 11211)
    assert str(error.value).isprintable()
    assert error.value.exit_code == 64


@pytest.mark.parametrize(
    ("family", "name", "label"),
    [
        (socket.AF_INET, ("1.2.3.4", 5), "tcp:1.2.3.4:5"),
        (socket.AF_INET6, ("::1", 5, 0, 0), "tcp6:[::1]:5"),
        (socket.AF_UNIX, "/run/s", "unix:/run/s"),
        (socket.AF_UNIX, b"/run/s", "unix:/run/s"),
        (socket.AF_UNIX, "", "unix:"),
        (socket.AF_INET, None, "tcp:?"),
    ],
)
def test_address_label(family, name, label):
    assert address_label(family, name) == label


def test_address_label_of_udp():
    assert address_label(socket.AF_INET, ("1.2.3.4", 5), "udp") == "udp:1.2.3.4:5"
    assert address_label(socket.AF_INET6, ("::1", 5, 0, 0), "udp") == "udp6:[::1]:5"


# TCP


def test_one_address(opened):
    opened += listen_tcp(["127.0.0.1"], 0, BACKLOG)
    (listener,) = opened
    assert listener.port > 0
    assert listener.label == f"tcp:127.0.0.1:{listener.port}"
    assert listener.file is None
    assert not listener.sock.getblocking()
    assert can_connect(listener)


@pytest.mark.parametrize("port", [0, -1])
def test_without_an_address_only_this_machine_can_connect(port, opened):
    opened += listen_tcp([], port, BACKLOG)
    hosts = [listener.sock.getsockname()[0] for listener in opened]
    assert hosts == (["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"])
    assert len({listener.port for listener in opened}) == 1
    assert all(is_loopback(listener) for listener in opened)
    assert all(can_connect(listener) for listener in opened)


def test_the_port_of_an_address_overrides_the_default(opened):
    opened += listen_tcp(["127.0.0.1"], 0, BACKLOG)
    port = opened[0].port
    opened += listen_tcp(["127.0.0.1:0"], port, BACKLOG)
    assert opened[1].port not in (0, port)


def test_duplicate_addresses_are_ignored(opened):
    opened += listen_tcp(["127.0.0.1", "127.0.0.1"], 0, BACKLOG)
    assert len(opened) == 1


def test_several_addresses(opened):
    opened += listen_tcp(["127.0.0.1:0", "127.0.0.2:0"], 0, BACKLOG)
    assert [listener.sock.getsockname()[0] for listener in opened] == ["127.0.0.1", "127.0.0.2"]


@needs_ipv6
@pytest.mark.parametrize("address", ["::1", "[::1]", "[::1]:0"])
def test_ipv6(address, opened):
    opened += listen_tcp([address], 0, BACKLOG)
    (listener,) = opened
    assert listener.label == f"tcp6:[::1]:{listener.port}"
    assert is_loopback(listener)
    assert can_connect(listener)


def test_every_address_is_not_loopback(opened):
    opened += listen_tcp(["0.0.0.0"], 0, BACKLOG)
    assert not is_loopback(opened[0])


@needs_ipv6
def test_star_listens_on_both_families(opened):
    opened += listen_tcp(["*"], 0, BACKLOG)
    families = {listener.sock.family for listener in opened}
    assert families == {socket.AF_INET, socket.AF_INET6}


def test_a_name_that_does_not_resolve(monkeypatch):
    def getaddrinfo(*arguments, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(sockets.socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(StartError) as error:
        listen_tcp(["no.such.host"], 0, BACKLOG)
    assert str(error.value) == "-l: cannot resolve 'no.such.host': Name or service not known"


@pytest.mark.parametrize("host", ["a..b", "x" * 100])
def test_invalid_host_names(host):
    with pytest.raises(StartError, match=r"cannot resolve .*: not a host name"):
        listen_tcp([host], 0, BACKLOG)


def test_a_port_in_use(opened):
    opened += listen_tcp(["127.0.0.1"], 0, BACKLOG)
    port = opened[0].port
    with pytest.raises(StartError) as error:
        listen_tcp(["127.0.0.1"], port, BACKLOG)
    reason = os.strerror(errno.EADDRINUSE)
    assert str(error.value) == f"failed to listen on TCP port {port} of 127.0.0.1: {reason}"


def test_a_failure_closes_what_was_open_already(opened):
    opened += listen_tcp(["127.0.0.1"], 0, BACKLOG)
    taken = opened[0].port
    with pytest.raises(StartError):
        listen_tcp(["127.0.0.2", "127.0.0.1"], taken, BACKLOG)
    opened += listen_tcp(["127.0.0.2"], taken, BACKLOG)


@needs_ipv6
@pytest.mark.parametrize("udp", [False, True])
@pytest.mark.parametrize(("taken", "free"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
@pytest.mark.parametrize("addresses", [[], ["both"]], ids=["no address", "a name"])
def test_one_address_of_a_name_is_enough(opened, monkeypatch, caplog, addresses, taken, free, udp):
    resolve_to(monkeypatch, "127.0.0.1", "::1")
    listen = listen_on(udp=udp)
    opened += listen([taken], -1)
    port = opened[0].port
    opened += (found := listen(addresses, port))
    assert [(one.sock.getsockname()[0], one.port) for one in found] == [(free, port)]
    protocol, reason = "UDP" if udp else "TCP", os.strerror(errno.EADDRINUSE)
    assert caplog.messages == [f"not listening on {protocol} port {port} of {taken}: {reason}"]


@needs_ipv6
@pytest.mark.parametrize("udp", [False, True])
@pytest.mark.parametrize("addresses", [[], ["both"]], ids=["no address", "a name"])
def test_a_name_of_which_each_address_is_in_use(opened, monkeypatch, addresses, udp):
    resolve_to(monkeypatch, "127.0.0.1", "::1")
    listen = listen_on(udp=udp)
    opened += listen([], -1)
    port = opened[0].port
    with pytest.raises(StartError, match=f"port {port} of 127.0.0.1: .* in use"):
        listen(addresses, port)


@needs_ipv6
@pytest.mark.parametrize("taken", ["127.0.0.1", "::1"])
def test_each_of_several_addresses_must_work(opened, taken):
    opened += listen_tcp([taken], 0, BACKLOG)
    port = opened[0].port
    # Another program may have the port at the other address.
    with pytest.raises(StartError, match=f"TCP port {port} of (127.0.0.1|::1)"):
        listen_tcp(["127.0.0.1", "::1"], port, BACKLOG)


@needs_ipv6
@pytest.mark.parametrize("udp", [False, True])
def test_all_addresses_of_a_name_have_the_same_free_port(opened, monkeypatch, udp):
    resolve_to(monkeypatch, "127.0.0.1", "::1")
    opened += listen_on(udp=udp)(["both"], -1)
    assert len(opened) == 2
    assert len({one.port for one in opened}) == 1


def test_addresses_that_the_machine_does_not_have_are_not_mentioned(opened, monkeypatch, caplog):
    resolve_to(monkeypatch, "127.0.0.1", "2001:db8::1")  # for documentation: no machine has it
    opened += listen_tcp(["both"], 0, BACKLOG)
    assert [one.sock.getsockname()[0] for one in opened] == ["127.0.0.1"]
    assert caplog.messages == []


def test_an_address_of_another_machine():
    with pytest.raises(StartError, match=os.strerror(errno.EADDRNOTAVAIL)):
        listen_tcp(["192.0.2.1"], 0, BACKLOG)  # TEST-NET-1, which is unassigned


# UDP


def test_udp_takes_the_same_addresses(opened):
    opened += listen_udp(["127.0.0.1", "127.0.0.2:0"], -1)
    assert [one.sock.getsockname()[0] for one in opened] == ["127.0.0.1", "127.0.0.2"]
    for one in opened:
        assert one.udp
        assert one.port > 0
        assert not one.sock.getblocking()
        assert one.label == f"udp:{one.sock.getsockname()[0]}:{one.port}"


def test_udp_without_an_address_only_this_machine_can_connect(opened):
    opened += listen_udp([], -1)
    hosts = [listener.sock.getsockname()[0] for listener in opened]
    assert hosts == (["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"])
    assert len({listener.port for listener in opened}) == 1


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_a_udp_port_cannot_be_shared(platform, monkeypatch, opened):
    monkeypatch.setattr(sockets.socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    monkeypatch.setattr(sockets.sys, "platform", platform)
    opened += listen_udp(["127.0.0.1"], -1)
    sock = opened[0].sock
    assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    assert bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) == (platform == "win32")
    with pytest.raises(
        StartError, match=f"UDP port {opened[0].port} of 127.0.0.1: Address"
    ) as error:
        listen_udp(["127.0.0.1"], opened[0].port)
    assert error.value.exit_code == 71


# UNIX sockets


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "s")


@pytest.mark.parametrize("mask", [0o700, 0o777, 0o660, 0o600])
@pytest.mark.parametrize("umask", [0o022, 0o777, 0])
def test_unix_socket_modes(mask, umask, path, opened):
    before = os.umask(umask)
    try:
        opened.append(listen_unix(path, mask, BACKLOG))
        assert os.umask(umask) == umask  # restored
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(path).stat().st_mode) == mask


def test_unix_socket(path, opened):
    listener = listen_unix(path, 0o700, BACKLOG)
    opened.append(listener)
    assert (listener.label, listener.port, listener.file) == (f"unix:{path}", 0, Path(path))
    assert is_loopback(listener)
    assert not listener.sock.getblocking()
    assert can_connect(listener)


def test_unix_socket_is_removed_on_close(path):
    listener = listen_unix(path, 0o700, BACKLOG)
    listener.close()
    assert not Path(path).exists()
    listener.close()  # closing twice is allowed


def test_unix_socket_of_the_next_server_is_not_removed(path, opened):
    listener = listen_unix(path, 0o700, BACKLOG)
    Path(path).unlink()
    opened.append(listen_unix(path, 0o700, BACKLOG))
    listener.close()
    assert can_connect(opened[0])


def test_removed_once_it_is_forgotten(path, opened):
    listener = listen_unix(path, 0o700, BACKLOG)
    listener.close()
    # The new file may get the inode number of the removed one.
    opened.append(listen_unix(path, 0o700, BACKLOG))
    listener.close()
    assert can_connect(opened[0])


@pytest.mark.parametrize(
    ("platform", "option"), [("linux", "SO_REUSEADDR"), ("win32", "SO_EXCLUSIVEADDRUSE")]
)
def test_a_port_cannot_be_shared(platform, option, monkeypatch, opened):
    # Stands in for an option this system lacks; any that is off by default would do.
    monkeypatch.setattr(sockets.socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    monkeypatch.setattr(sockets.sys, "platform", platform)
    opened += listen_tcp(["127.0.0.1"], 0, BACKLOG)
    for name in ("SO_REUSEADDR", "SO_EXCLUSIVEADDRUSE"):
        is_set = opened[0].sock.getsockopt(socket.SOL_SOCKET, getattr(socket, name))
        assert bool(is_set) == (name == option)


def test_relative_unix_socket_is_removed_from_another_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listener = listen_unix("relative", 0o700, BACKLOG)
    monkeypatch.chdir("/")
    listener.close()
    assert list(tmp_path.iterdir()) == []


def test_stale_unix_socket_is_replaced(path, opened):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
        stale.listen()
    assert stat.S_ISSOCK(Path(path).stat().st_mode)
    opened.append(listen_unix(path, 0o700, BACKLOG))
    assert can_connect(opened[0])


def test_live_unix_socket_is_refused_and_left_alone(path, opened):
    opened.append(listen_unix(path, 0o700, BACKLOG))
    with pytest.raises(StartError, match="another server is already listening there"):
        listen_unix(path, 0o700, BACKLOG)
    assert can_connect(opened[0])


def test_another_kind_of_file_is_refused_and_left_alone(path):
    Path(path).write_text("precious")
    with pytest.raises(StartError, match="the file exists and is not a socket"):
        listen_unix(path, 0o700, BACKLOG)
    assert Path(path).read_text() == "precious"


def test_a_link_is_not_followed(path, tmp_path):
    Path(path).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match="not a socket"):
        listen_unix(path, 0o700, BACKLOG)


@pytest.mark.parametrize(
    ("name", "reason"), [("none/s", os.strerror(errno.ENOENT)), ("x" * 200, "too long")]
)
def test_unix_socket_that_cannot_be_created(name, reason, tmp_path):
    before = os.umask(0o022)
    try:
        with pytest.raises(StartError, match=reason):
            listen_unix(str(tmp_path / name), 0o700, BACKLOG)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


# The file with the ports


def test_write_ports(tmp_path, monkeypatch, opened):
    file = tmp_path / "ports"
    monkeypatch.setenv("MEMCACHED_PORT_FILENAME", str(file))
    opened += listen_tcp(["127.0.0.1"], 0, BACKLOG)
    opened += listen_udp(["127.0.0.1"], -1)
    opened.append(listen_unix(str(tmp_path / "s"), 0o700, BACKLOG))
    write_ports(opened)
    assert file.read_text() == f"TCP INET: {opened[0].port}\nUDP INET: {opened[1].port}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ports", "s"]


@needs_ipv6
def test_write_ports_of_both_families(tmp_path, monkeypatch, opened):
    file = tmp_path / "ports"
    monkeypatch.setenv("MEMCACHED_PORT_FILENAME", str(file))
    opened += listen_tcp([], 0, BACKLOG)
    write_ports(opened)
    port = opened[0].port
    assert file.read_text() == f"TCP INET: {port}\nTCP INET6: {port}\n"


@pytest.mark.parametrize("value", [None, ""])
def test_write_ports_only_if_requested(value, tmp_path, monkeypatch, opened):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMCACHED_PORT_FILENAME", raising=False)
    if value is not None:
        monkeypatch.setenv("MEMCACHED_PORT_FILENAME", value)
    opened += listen_tcp(["127.0.0.1"], 0, BACKLOG)
    write_ports(opened)
    assert list(tmp_path.iterdir()) == []


def test_write_ports_fails(tmp_path, monkeypatch, opened):
    monkeypatch.setenv("MEMCACHED_PORT_FILENAME", str(tmp_path / "none" / "ports"))
    opened += listen_tcp(["127.0.0.1"], 0, BACKLOG)
    with pytest.raises(StartError, match="MEMCACHED_PORT_FILENAME"):
        write_ports(opened)
