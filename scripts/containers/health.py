"""Health check of the container: exit code 0 if the server answers in its protocol, else 1.

It asks where MEMLITE_PORT or MEMLITE_UNIX_SOCKET says, as the server that was started by them.
"""

import os
import socket
import sys

SECONDS = 2


def main() -> int:
    """Ask for the version."""
    path = os.environ.get("MEMLITE_UNIX_SOCKET")
    port = os.environ.get("MEMLITE_PORT") or 11211
    try:
        with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as client:
            client.settimeout(SECONDS)
            client.connect(path or ("127.0.0.1", int(port)))
            client.sendall(b"version\r\n")
            reply = client.recv(100)
    except (OSError, ValueError) as error:
        print(f"no answer: {error}")
        return 1
    print(reply.decode("ascii", "replace").strip())
    return 0 if reply.startswith(b"VERSION ") else 1


if __name__ == "__main__":
    sys.exit(main())
