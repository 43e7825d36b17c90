"""Servers that do not speak memcached's protocol, to which clients may connect by mistake."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

__all__ = ["answering", "serving"]


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Call `serve` with each connection, in a separate thread; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the listener has been closed
                    return
                threading.Thread(target=guarded, args=(connection,), daemon=True).start()

        def guarded(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Wakes the accepting thread; closing the socket alone would not.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def answering(*replies: bytes, then_close: bool = False) -> contextlib.AbstractContextManager[int]:
    """Answer each request with the next of `replies`; then stay silent, or close."""

    def serve(connection: socket.socket) -> None:
        for reply in replies:
            if not connection.recv(65536):
                return
            connection.sendall(reply)
        while not then_close and connection.recv(65536):
            pass

    return serving(serve)
