"""Health check of the container: exit code 0 if the server answers in its protocol, else 1.

It asks where MEMLITE_PORT or MEMLITE_UNIX_SOCKET says, as the server that was started by them; or,
given a URL, the emulator at it.
"""

import os
import socket
import sys

SECONDS = 2


def main() -> int:
    """Say what was answered."""
    try:
        answer = emulator(sys.argv[1]) if sys.argv[1:] else server()
    except (OSError, ValueError) as error:
        print(f"not healthy: {error}")
        return 1
    print(answer)
    return 0


def server() -> str:
    """Ask for the version."""
    path = os.environ.get("MEMLITE_UNIX_SOCKET")
    port = os.environ.get("MEMLITE_PORT") or 11211
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as client:
        client.settimeout(SECONDS)
        client.connect(path or ("127.0.0.1", int(port)))
        client.sendall(b"version\r\n")
        reply = client.recv(100)
    # The lite dialect has no such command, and says so.
    lite = os.environ.get("MEMLITE_DIALECT") == "lite"
    if not reply.startswith(b"ERROR\r\n" if lite else b"VERSION "):
        raise ValueError(f"{reply!r} is no version")
    return reply.decode("ascii", "replace").strip()


def emulator(url: str) -> str:
    """Ask for a page; an error's status is an exception."""
    import urllib.request  # takes longer than all the rest

    with urllib.request.urlopen(url, timeout=SECONDS) as reply:
        return f"{reply.status}"


if __name__ == "__main__":
    sys.exit(main())
