"""Use an installed memlite as its users do: through the console script and ``python -m``."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path


def main() -> None:
    """Start it both ways, store and read a value, and stop it."""
    version = metadata.version("memlite-cache")
    script = str(Path(sys.executable).with_name("memlite"))
    for command in ([script], [sys.executable, "-m", "memlite"]):
        shown = subprocess.run([*command, "-V"], capture_output=True, text=True, check=True).stdout
        assert shown == f"memlite {version} (pure Python)\n", shown
        store_and_read(command)
    names = {str(file) for file in metadata.files("memlite-cache") or []}
    assert "memlite/py.typed" in names, names
    assert any(name.endswith("LICENSE") for name in names), names
    for shared in (
        "bash-completion/completions/memlite",
        "zsh/site-functions/_memlite",
        "fish/vendor_completions.d/memlite.fish",
        "man/man1/memlite.1",
    ):
        assert any(name.endswith(f"share/{shared}") for name in names), names
    print(f"memlite {version} from the wheel serves")


def store_and_read(command: list[str]) -> None:
    """Run a server on a free port, and store and read a value."""
    with tempfile.TemporaryDirectory() as folder:
        ports = Path(folder, "ports")
        process = subprocess.Popen(
            [*command, "-p", "0"], env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)}
        )
        try:
            deadline = time.monotonic() + 20
            while not ports.exists():
                assert process.poll() is None, "the server exited"
                assert time.monotonic() < deadline, "the server did not start in time"
                time.sleep(0.02)
            found = re.search(r"TCP INET: (\d+)", ports.read_text())
            assert found
            with socket.create_connection(("127.0.0.1", int(found[1])), 10) as client:
                client.sendall(b"set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n")
                reply = b""
                while data := client.recv(4096):
                    reply += data
            assert reply == b"STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n", reply
        finally:
            process.terminate()
        assert process.wait(10) == 0


if __name__ == "__main__":
    main()
