"""A real sshd on loopback, whose addresses stand for several machines."""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.support.ports import unused_port
from tests.support.waiting import wait_until

MACHINES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
_SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")

needs_sshd = pytest.mark.skipif(
    _SSHD is None or shutil.which("ssh") is None or not sys.platform.startswith("linux"),
    reason="no sshd, or no ssh, or no further loopback addresses (apt install openssh-server)",
)


@dataclass(frozen=True)
class Sshd:
    """A running sshd.

    Attributes:
        process: the listening process.
        ssh: the command line of a client that can log in.
        home: the folder where commands run.
        memlite: the command line of this memlite there.
    """

    process: subprocess.Popen[bytes]
    ssh: Sequence[str]
    home: Path

    @property
    def memlite(self) -> str:
        return shlex.join(["env", "-C", str(self.home), sys.executable, "-P", "-m", "memlite"])

    def options(self, *machines: str) -> list[str]:
        """Return the options of ``memlite bench`` that start servers there."""
        return [
            f"--hosts={','.join(machines)}",
            f"--ssh={shlex.join(self.ssh)}",
            f"--remote-memlite={self.memlite}",
        ]


@contextlib.contextmanager
def sshd(
    folder: Path, keys: Path | None = None, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Sshd]:
    """Run an sshd with keys of its own, for this user alone.

    Args:
        folder: the folder for its files.
        keys: the file of authorized keys; None for the client's key alone.
        variables: the environment variables of commands.
    """
    assert _SSHD is not None
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # otherwise it refuses to start
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    (folder / "home").mkdir()
    port = unused_port()
    settings = [f"{name}={text}" for name, text in variables.items()]
    (folder / "config").write_text(
        "".join(f"ListenAddress {machine}\n" for machine in MACHINES)
        + f"Port {port}\nHostKey {folder / 'host'}\nPidFile none\n"
        f"AuthorizedKeysFile {keys or folder / 'user.pub'}\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nMaxStartups 100\n"
        + (f"SetEnv {' '.join(settings)}\n" if settings else "")
    )
    host = (folder / "host.pub").read_text()
    (folder / "known").write_text("".join(f"[{one}]:{port} {host}" for one in MACHINES))
    ssh = [
        *("ssh", "-F", "none", "-p", str(port), "-i", str(folder / "user")),
        *("-o", f"UserKnownHostsFile={folder / 'known'}", "-o", "StrictHostKeyChecking=yes"),
    ]
    command = [_SSHD, "-D", "-e", "-f", str(folder / "config")]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            assert wait_until(lambda: process.poll() is not None or _listens(port), 60)
            assert process.poll() is None, (folder / "log").read_text()
            yield Sshd(process, ssh, folder / "home")
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((MACHINES[-1], port), 1):
        return True
    return False
