"""The proxies under comparison: twemproxy, memcached's own, and one or more builds of memlite."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.contestants import Contestant
from harness.processes import HOST, Running, free_port, program, running_at

__all__ = ["PEER", "Proxy", "memcached_proxy", "memlite_proxy", "nutcracker"]

PEER: Final = "nutcracker"
_AS_ROOT: Final = ("-u", "root") if os.geteuid() == 0 else ()
# Given a port, the nodes' addresses and a folder for its files, returns a command line.
_Command = Callable[[int, Sequence[str], Path], list[str]]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy to measure.

    Attributes:
        name: the name in tables.
        description: the version.
        command: returns its command line.
        environment: the environment variables.
    """

    name: str
    description: str
    command: _Command
    environment: Mapping[str, str]

    def running(
        self, core: int, nodes: Sequence[int], folder: Path
    ) -> AbstractContextManager[Running]:
        """Run it on `core`, in front of nodes on these ports, for the duration of a block."""
        port = free_port()
        command = self.command(port, [f"{HOST}:{node}" for node in nodes], folder)
        return running_at(self.name, command, core, port, self.environment)


def nutcracker(path: str | None) -> Proxy:
    """Return twemproxy, with ketama and its defences switched on.

    Raises:
        BenchError: it is not installed.
    """
    found = program(path or "nutcracker", "proxies are compared with twemproxy")

    def command(port: int, nodes: Sequence[str], folder: Path) -> list[str]:
        file = folder / f"nutcracker-{port}.yml"
        servers = "".join(f"   - {node}:1\n" for node in nodes)
        file.write_text(
            f"bench:\n  listen: {HOST}:{port}\n  hash: md5\n  distribution: ketama\n"
            "  auto_eject_hosts: true\n  server_failure_limit: 3\n  timeout: 1000\n"
            f"  servers:\n{servers}",
            encoding="utf-8",
        )
        return [found, "-c", str(file), "-a", HOST, "-s", str(free_port())]

    said = subprocess.run([found, "-V"], capture_output=True, text=True)
    version = (said.stderr + said.stdout).strip().partition("\n")[0]
    return Proxy(PEER, version, command, os.environ)


def memcached_proxy(path: str) -> Proxy:
    """Return memcached's own proxy.

    Raises:
        BenchError: the program does not exist.
    """
    found = program(path, "--memcached-proxy needs a memcached that was built with its proxy")

    def command(port: int, nodes: Sequence[str], folder: Path) -> list[str]:
        file = folder / f"routes-{port}.lua"
        listed = ", ".join(f'"{node}"' for node in nodes)
        file.write_text(
            f"pools{{ main = {{ backends = {{ {listed} }} }} }}\n"
            'routes{ default = route_direct{ child = "main" } }\n',
            encoding="utf-8",
        )
        options = ["-o", f"proxy_config=routelib,proxy_arg={file}"]
        return [found, "-t", "1", "-l", HOST, "-U", "0", "-p", str(port), *_AS_ROOT, *options]

    said = subprocess.run([found, "-V"], capture_output=True, text=True).stdout.strip()
    return Proxy("memcached", f"{said}, its proxy, -t 1", command, os.environ)


def memlite_proxy(build: Contestant, name: str = "", further: Sequence[str] = ()) -> Proxy:
    """Return the proxy of a build of memlite, under a name of its own if it has further options."""

    def command(port: int, nodes: Sequence[str], _folder: Path) -> list[str]:
        options = ["-l", HOST, "-p", str(port), "--nodes", ",".join(nodes)]
        return [*build.command, "proxy", *options, *further]

    description = " ".join((build.description, *further))
    return Proxy(name or build.name, description, command, build.environment)
