"""Notification of the service manager about the server's state: systemd's sd_notify(3)."""

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping

__all__ = ["ServiceManager"]

_log = logging.getLogger("memlite")

# The keep-alive interval as a fraction of systemd's watchdog timeout; sd_watchdog_enabled(3)
# recommends a half.
_WATCHDOG_SHARE = 0.5
_RETRY_SECONDS = 0.1


class ServiceManager:
    """Notifies systemd that the process is ready, alive or stopping; without systemd, a no-op.

    Args:
        environment: the process's environment. systemd's variables are removed from it, because
            they must not be inherited by child processes.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        # "@" stands for the NUL byte at the start of an abstract socket's name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        interval = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", str(os.getpid()))
        self._interval = 0.0
        if self._address and interval.isdecimal() and process == str(os.getpid()):
            self._interval = int(interval) / 1e6 * _WATCHDOG_SHARE
        self._warned = False

    @property
    def interval(self) -> float:
        """Seconds between two keep-alive messages to systemd; 0 if it expects none."""
        return self._interval

    def ready(self, loop: asyncio.AbstractEventLoop, status: str) -> None:
        """Report that the server is ready, and from now on that the event loop is alive.

        Args:
            loop: the event loop that the watchdog monitors.
            status: a line for ``systemctl status``.
        """
        if not self._notify("READY=1", status):
            # systemd waits for this message, so retry until it has been delivered.
            loop.call_later(_RETRY_SECONDS, self.ready, loop, status)
        elif self._interval:
            self._keep_alive(loop)

    def tell_ready(self, status: str) -> None:
        """Report that the server is ready, for a process without an event loop."""
        self._notify("READY=1", status)

    def alive(self) -> None:
        """Report that the server is alive, for a process without an event loop."""
        if self._interval:
            self._notify("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the server is stopping."""
        self._notify("STOPPING=1", "Stopping")

    def _keep_alive(self, loop: asyncio.AbstractEventLoop) -> None:
        self._notify("WATCHDOG=1")
        loop.call_later(self._interval, self._keep_alive, loop)

    def _notify(self, state: str, status: str = "") -> bool:
        """Send a message; return False if the service manager's queue is full."""
        if not self._address:
            return True
        message = state + ("\nSTATUS=" + " ".join(status.split()) if status else "")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # A service manager that does not read must not block the server.
                sender.setblocking(False)
                sender.sendto(message.encode(errors="replace"), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._warned:
                _log.warning("cannot notify the service manager: %s", error.strerror or error)
            self._warned = True
        return True
