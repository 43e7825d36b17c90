"""The service manager that started the process, told how it goes: systemd's sd_notify(3)."""

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping

__all__ = ["ServiceManager"]

_log = logging.getLogger("memlite")

# Of the time between signs of life after which systemd ends the process: sd_watchdog_enabled(3)
# recommends a half.
_WATCHDOG_SHARE = 0.5
_AGAIN_SECONDS = 0.1


class ServiceManager:
    """Where the process says that it is ready, alive, and about to end; nowhere without systemd.

    Args:
        environment: the process's. What systemd put there is taken out, as it is for this process
            and not for any that it starts.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        # "@" stands for the zero byte that begins an abstract socket's name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        interval = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", str(os.getpid()))
        self._interval = 0.0
        if self._address and interval.isdecimal() and process == str(os.getpid()):
            self._interval = int(interval) / 1e6 * _WATCHDOG_SHARE
        self._complained = False

    def ready(self, loop: asyncio.AbstractEventLoop, status: str) -> None:
        """Report that clients are served, and from now on that the event loop turns.

        Args:
            loop: whose turning is watched.
            status: a line for ``systemctl status``.
        """
        if not self._tell("READY=1", status):
            # It waits for this, however much it has to do.
            loop.call_later(_AGAIN_SECONDS, self.ready, loop, status)
        elif self._interval:
            self._show_life(loop)

    def stopping(self) -> None:
        """Report that the process is about to end."""
        self._tell("STOPPING=1", "Stopping")

    def _show_life(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tell("WATCHDOG=1")
        loop.call_later(self._interval, self._show_life, loop)

    def _tell(self, state: str, status: str = "") -> bool:
        """Send a message; False when the manager has too many to take it now."""
        if not self._address:
            return True
        message = state + ("\nSTATUS=" + " ".join(status.split()) if status else "")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # A manager that does not read must not stop the cache.
                sender.setblocking(False)
                sender.sendto(message.encode(errors="replace"), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._complained:
                _log.warning("cannot notify the service manager: %s", error.strerror or error)
            self._complained = True
        return True
