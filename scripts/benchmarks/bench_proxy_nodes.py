"""Measure how the cost of a proxy depends on the number of nodes and of keys.

With 3 to 100 memcached nodes, callgrind counts the instructions per get, and how often the proxy
writes to a node and reads from one; likewise for twemproxy if --nutcracker is given. The other
figure is the proxy's memory after gets of ten thousand to a million different keys.

Needs memcached and valgrind. It measures no times, so it can run on a busy machine.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.proxies import nutcracker

_KEYS = 300  # at least, and at least one per connection
_PASSES = 10  # over all keys, while instructions are counted
_IDLE = 2.0  # seconds for which a proxy without requests is measured
_PIPELINE = 100
_SECONDS = 300.0  # for a proxy under callgrind to start
_WRITES = re.compile(r"(?:__|__GI_|__GI___|__libc_)?(?:write|writev|send|sendto|sendmsg)")
_READS = re.compile(r"(?:__|__GI_|__GI___|__libc_)?(?:read|readv|recv|recvfrom|recvmsg)")


@dataclass(frozen=True)
class Cost:
    """The cost of a get of one key through a proxy that has seen the key before.

    Attributes:
        instructions: instructions in user space, including background work. Under callgrind there
            is several times as much of that as otherwise, so this is an upper bound.
        without_timers: the same without `each_second`. This is a lower bound: timers of a busy
            proxy expire less often.
        writes: calls that write to a node.
        reads: calls that read from a node.
        each_second: instructions per second without requests.
    """

    instructions: float
    without_timers: float
    writes: float
    reads: float
    each_second: float


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
        started: list[subprocess.Popen[bytes]] = []
        for port in ports:
            where = ["-l", "127.0.0.1", "-p", str(port), "-U", "0"]
            command = [program, *where, "-t", "1", "-m", "8", "-u", "nobody"]
            started.append(stack.enter_context(_process(command)))
        for port in ports:
            _connect(port).close()
        yield ",".join(f"127.0.0.1:{port}" for port in ports)
        for process in started:  # all at once, as each takes a while to end
            process.terminate()


def _ask(sock: socket.socket, request: bytes, replies: int, end: bytes) -> None:
    sock.sendall(request)
    data = b""
    while data.count(end) < replies:
        more = sock.recv(1 << 20)
        if not more:
            raise ConnectionError("the proxy closed the connection")
        data += more


def _proxy(nodes: str, port: int) -> list[str]:
    options = ["-l", "127.0.0.1", "-p", str(port), "--nodes", nodes, "--deadline", "300"]
    return [sys.executable, "-P", "-m", "memlite", "proxy", "-c", "10000", *options]


def _get_all(pid: int, socks: Sequence[socket.socket], keys: Sequence[bytes]) -> None:
    """Get each key once, with one request per connection at a time.

    The proxy is stopped while requests are sent, so that they arrive together, whatever the load.
    """
    for at in range(0, len(keys), len(socks)):
        some = list(zip(socks, keys[at : at + len(socks)], strict=False))
        os.kill(pid, signal.SIGSTOP)
        for sock, key in some:
            sock.sendall(b"get %b\r\n" % key)
        os.kill(pid, signal.SIGCONT)
        for sock, _ in some:
            _ask(sock, b"", 1, b"END\r\n")


def _control(flag: str, pid: int) -> None:
    command = ["callgrind_control", flag, str(pid)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _counted(dump: Path) -> tuple[int, Counter[str]]:
    """Return the instructions in a dump of callgrind, and how often each function was called."""
    names: dict[str, str] = {}
    calls: Counter[str] = Counter()
    total = 0
    called = ""
    for line in dump.read_text().splitlines():
        if found := re.match(r"c?fn=(\(\d+\))(?: (.+))?", line):
            called = found[1]
            if found[2]:
                names[called] = found[2]
        elif line.startswith("calls="):
            calls[names[called]] += int(line[6:].split()[0])
        elif found := re.match(r"(?:summary|totals): (\d+)", line):
            total = int(found[1])
    return total, calls


def _number(calls: Counter[str], of: re.Pattern[str]) -> int:
    return sum(times for name, times in calls.items() if of.fullmatch(name.partition("@")[0]))


def cost(nodes: int, memcached: str, connections: int, peer: str | None = None) -> Cost:
    """Measure a get through a proxy.

    Args:
        nodes: number of nodes.
        memcached: the program of the nodes.
        connections: number of client connections, which send requests at the same time.
        peer: the program of twemproxy, to measure it instead.
    """
    keys = [b"key:%d" % number for number in range(max(_KEYS, connections))]
    with tempfile.TemporaryDirectory() as folder, _nodes(nodes, memcached) as addresses:
        out = Path(folder) / "callgrind"
        port = _free_port()
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        valgrind.append("--instr-atstart=no")  # start-up takes a fraction of the time
        command = _proxy(addresses, port)
        if peer:
            command = nutcracker(peer).command(port, addresses.split(","), Path(folder))
        with _process([*valgrind, *command]) as process:
            socks = [_connect(port) for _ in range(connections)]
            for at in range(0, len(keys), _PIPELINE):
                some = keys[at : at + _PIPELINE]
                sets = b"".join(b"set %b 0 0 100\r\n%b\r\n" % (key, b"x" * 100) for key in some)
                _ask(socks[0], sets, len(some), b"STORED\r\n")
            _control("--instr=on", process.pid)
            for _ in range(3):
                _get_all(process.pid, socks, keys)
            _control("-z", process.pid)
            began = time.monotonic()
            time.sleep(_IDLE)
            _control("-d", process.pid)  # resets the counts to zero
            idle = time.monotonic() - began
            began = time.monotonic()
            for _ in range(_PASSES):
                _get_all(process.pid, socks, keys)
            _control("-d", process.pid)
            busy = time.monotonic() - began
            for sock in socks:
                sock.close()
        each_second = _counted(out.with_name("callgrind.1"))[0] / idle
        total, calls = _counted(out.with_name("callgrind.2"))
    gets = _PASSES * len(keys)
    writes = _number(calls, _WRITES) / gets - 1  # one write is to the client, and one read from it
    reads = _number(calls, _READS) / gets - 1
    return Cost(total / gets, (total - each_second * busy) / gets, writes, reads, each_second)


def resident_mib(keys: int, memcached: str) -> float:
    """Return a proxy's memory after gets of this number of different keys."""
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


def _table(title: str, setups: Sequence[tuple[int, int]], memcached: str, peer: str | None) -> None:
    """Measure and print a proxy's cost for each pair of node and connection counts."""
    print(f"{title}: nodes, connections, instructions from, to, writes, reads, each second")
    for nodes, connections in setups:
        found = cost(nodes, memcached, connections, peer)
        print(
            f"{nodes:5} {connections:5} {found.without_timers:7,.0f} {found.instructions:7,.0f}"
            f" {found.writes:6.3f} {found.reads:6.3f} {found.each_second:9,.0f}",
            flush=True,
        )


def main() -> int:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", default="3,10,30,100", help="(default: %(default)s)")
    parser.add_argument("--keys", default="10000,100000,1000000", help="(default: %(default)s)")
    parser.add_argument(
        "--connections", type=int, default=50, help="with any number of nodes (default: 50)"
    )
    parser.add_argument(
        "--per-node", type=int, default=16, help="connections for each node (default: 16)"
    )
    parser.add_argument("--nutcracker", metavar="PROGRAM", help="measure this twemproxy as well")
    parser.add_argument("--memcached", default=shutil.which("memcached"), metavar="PROGRAM")
    options = parser.parse_args()
    for keys in map(int, filter(None, options.keys.split(","))):
        print(f"{keys:,} keys: {resident_mib(keys, options.memcached):.1f} MiB", flush=True)
    numbers = [int(number) for number in options.nodes.split(",") if number]
    setups = [(number, options.connections) for number in numbers if options.connections]
    setups += [(number, number * options.per_node) for number in numbers if options.per_node]
    if setups:
        _table("memlite", setups, options.memcached, None)
        if options.nutcracker:
            _table("twemproxy", setups, options.memcached, options.nutcracker)
    return 0


if __name__ == "__main__":
    sys.exit(main())
