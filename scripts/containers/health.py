"""Health check of the container: exit code 0 if the server answers in its protocol, else 1.

It connects to MEMLITE_PORT or MEMLITE_UNIX_SOCKET, the variables that configure the server. Given a
URL, it checks the emulator at that URL instead.
"""

import os
import socket
import sys

SECONDS = 2


def main() -> int:
    """Print the answer, and return the exit code."""
    try:
        answer = emulator(sys.argv[1]) if sys.argv[1:] else server()
    except (OSError, ValueError) as error:
        print(f"not healthy: {error}")
        return 1
    print(answer)
    return 0


def server() -> str:
    """Return the server's reply to ``version``."""
    path = os.environ.get("MEMLITE_UNIX_SOCKET")
    port = os.environ.get("MEMLITE_PORT") or "11211"
    if "://" in port:  # Kubernetes describes a Service of that name, which the server ignores
        port = "11211"
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as client:
        client.settimeout(SECONDS)
        client.connect(path or ("127.0.0.1", int(port)))
        client.sendall(b"version\r\n")
        reply = client.recv(100)
    # The lite dialect has no such command: its error shows that the server is alive.
    lite = os.environ.get("MEMLITE_DIALECT") == "lite"
    if not reply.startswith(b"ERROR\r\n" if lite else b"VERSION "):
        raise ValueError(f"{reply!r} is not a version")
    return reply.decode("ascii", "replace").strip()


def emulator(url: str) -> str:
    """Return the status of a request to the emulator; an error status raises."""
    import urllib.request  # slow to import

    with urllib.request.urlopen(url, timeout=SECONDS) as reply:
        return f"{reply.status}"


if __name__ == "__main__":
    sys.exit(main())
