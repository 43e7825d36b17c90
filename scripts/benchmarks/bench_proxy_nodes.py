"""What a proxy costs with more nodes, and with more keys.

Instructions per get, by callgrind, with 3 to 100 memcacheds behind it, and those of twemproxy if it
is named; and the proxy's memory after gets of ten thousand and of a million different keys.

Needs memcached and valgrind. It measures no times, so it can run on a busy machine.
"""

import argparse
import contextlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.proxies import nutcracker

_KEYS = 300
_PIPELINE = 100
_SECONDS = 300.0  # for a proxy under callgrind to start


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _connect(port: int) -> socket.socket:
    until = time.monotonic() + _SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _nodes(count: int, program: str) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        ports = [_free_port() for _ in range(count)]
        for port in ports:
            where = ["-l", "127.0.0.1", "-p", str(port), "-U", "0"]
            stack.enter_context(_process([program, *where, "-t", "1", "-m", "8", "-u", "nobody"]))
        for port in ports:
            _connect(port).close()
        yield ",".join(f"127.0.0.1:{port}" for port in ports)


def _ask(sock: socket.socket, request: bytes, replies: int, end: bytes) -> None:
    sock.sendall(request)
    data = b""
    while data.count(end) < replies:
        more = sock.recv(1 << 20)
        if not more:
            raise ConnectionError("the proxy has closed the connection")
        data += more


def _proxy(nodes: str, port: int) -> list[str]:
    options = ["-l", "127.0.0.1", "-p", str(port), "--nodes", nodes, "--deadline", "300"]
    return [sys.executable, "-P", "-m", "memlite", "proxy", *options]


def _get_all(socks: Sequence[socket.socket], keys: Sequence[bytes]) -> None:
    """Get each key once, as many at a time as there are connections."""
    for at in range(0, len(keys), len(socks)):
        some = list(zip(socks, keys[at : at + len(socks)], strict=False))
        for sock, key in some:
            sock.sendall(b"get %b\r\n" % key)
        for sock, _ in some:
            _ask(sock, b"", 1, b"END\r\n")


def _control(flag: str, process: "subprocess.Popen[bytes]") -> None:
    command = ["callgrind_control", flag, str(process.pid)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def instructions(nodes: int, memcached: str, connections: int, peer: str | None = None) -> float:
    """Return the instructions of a proxy per get of one key, which it has been asked for before.

    Args:
        nodes: how many there are.
        memcached: their program.
        connections: of clients, which ask at the same time.
        peer: the program of twemproxy, to measure it instead.
    """
    keys = [b"key:%d" % number for number in range(_KEYS)]
    with tempfile.TemporaryDirectory() as folder, _nodes(nodes, memcached) as addresses:
        out = Path(folder) / "callgrind"
        port = _free_port()
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        command = _proxy(addresses, port)
        if peer:
            command = nutcracker(peer).command(port, addresses.split(","), Path(folder))
        with _process([*valgrind, *command]) as process:
            socks = [_connect(port) for _ in range(connections)]
            for key in keys:
                _ask(socks[0], b"set %b 0 0 100\r\n%b\r\n" % (key, b"x" * 100), 1, b"STORED\r\n")
            _get_all(socks, keys)
            _control("-z", process)
            _get_all(socks, keys)
            _control("-d", process)
            for sock in socks:
                sock.close()
        counted = 0
        for path in Path(folder).iterdir():
            found = re.search(r"^(?:summary|totals): (\d+)", path.read_text(), re.MULTILINE)
            if found and path.name.endswith(".1"):  # the dump that was asked for, without the end
                counted = int(found[1])
        return counted / _KEYS


def resident_mib(keys: int, memcached: str) -> float:
    """Return a proxy's memory after gets of so many different keys."""
    with _nodes(3, memcached) as addresses:
        port = _free_port()
        with _process(_proxy(addresses, port)) as process:
            sock = _connect(port)
            for at in range(0, keys, _PIPELINE):
                some = range(at, min(keys, at + _PIPELINE))
                requests = b"".join(b"get a-key-of-usual-length:%012d\r\n" % one for one in some)
                _ask(sock, requests, len(some), b"END\r\n")
            sock.close()
            status = Path(f"/proc/{process.pid}/status").read_text()
            found = re.search(r"VmRSS:\s+(\d+)", status)
            assert found
            return int(found[1]) / 1024


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", default="3,10,30,100", help="(default: %(default)s)")
    parser.add_argument("--keys", default="10000,100000,1000000", help="(default: %(default)s)")
    parser.add_argument("--connections", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--nutcracker", metavar="PROGRAM", help="measure this twemproxy as well")
    parser.add_argument("--memcached", default=shutil.which("memcached"), metavar="PROGRAM")
    options = parser.parse_args()
    for keys in map(int, filter(None, options.keys.split(","))):
        print(f"{keys:,} keys: {resident_mib(keys, options.memcached):.1f} MiB", flush=True)
    for nodes in map(int, filter(None, options.nodes.split(","))):
        cost = instructions(nodes, options.memcached, options.connections)
        print(f"{nodes} nodes: {cost:,.0f} instructions per get", flush=True)
        if options.nutcracker:
            cost = instructions(nodes, options.memcached, options.connections, options.nutcracker)
            print(f"{nodes} nodes: {cost:,.0f} instructions of twemproxy", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
