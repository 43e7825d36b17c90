"""Health check of the container: exit code 0 if the server answers in its protocol, else 1.

It connects to MEMLITE_PORT or MEMLITE_UNIX_SOCKET, with TLS if MEMLITE_ENABLE_SSL is set: the
variables that configure the server. MEMLITE_HEALTH_HOST names another host. Given a URL, it checks
the emulator at that URL instead.
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
    host = os.environ.get("MEMLITE_HEALTH_HOST") or "127.0.0.1"
    port = os.environ.get("MEMLITE_PORT") or "11211"
    if "://" in port:  # set by Kubernetes for a Service of that name; the server ignores it
        port = "11211"
    if path:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(SECONDS)
        client.connect(path)
    else:
        client = socket.create_connection((host, int(port)), SECONDS)
    if not path and os.environ.get("MEMLITE_ENABLE_SSL", "").lower() in ("1", "true", "yes", "on"):
        return over_tls(client)
    with client:
        return version(client)


def version(client: socket.socket) -> str:
    """Return the reply to ``version`` on a connection."""
    client.sendall(b"version\r\n")
    reply = client.recv(100)
    # The lite dialect has no such command, and a server with passwords answers nothing else before
    # a login: these errors show that it is alive.
    lite = os.environ.get("MEMLITE_DIALECT") == "lite"
    alive = (b"ERROR\r\n",) if lite else (b"VERSION ", b"CLIENT_ERROR unauthenticated")
    if not reply.startswith(alive):
        raise ValueError(f"expected a version, got {reply!r}")
    return reply.decode("ascii", "replace").strip()


def over_tls(client: socket.socket) -> str:
    """Return the reply to ``version`` with TLS, or the server's demand for a certificate."""
    import ssl  # slow to import

    # The name in the certificate does not matter for a health check.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with client, context.wrap_socket(client) as encrypted:
            return version(encrypted)
    except ssl.SSLError as error:
        if "CERTIFICATE_REQUIRED" not in (error.reason or ""):
            raise
        return "the server requires a client certificate"


def emulator(url: str) -> str:
    """Return the status of a request to the emulator; an error status raises."""
    import urllib.request  # slow to import

    with urllib.request.urlopen(url, timeout=SECONDS) as reply:
        return f"{reply.status}"


if __name__ == "__main__":
    sys.exit(main())
