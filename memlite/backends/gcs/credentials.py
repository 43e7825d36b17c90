"""Access tokens from google-auth, which blocks, fetched in a thread."""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import Request

from memlite.core.logs import failure

__all__ = ["Authorization", "NoTokenError"]

_log = logging.getLogger("memlite")

# Tokens are valid for an hour. A new one is fetched some minutes before the old one expires. A
# token is not used in its last seconds, because a request may take that long to arrive.
_RENEW_SECONDS = 240.0
_MARGIN_SECONDS = 20.0
_RETRY_SECONDS = 10.0
_FETCH_SECONDS = 10.0
_FOREVER = float("inf")


class NoTokenError(Exception):
    """There is no access token, and none can be obtained now."""

    def __init__(self) -> None:
        super().__init__("cannot get an access token from Google")


class Authorization:
    """The headers that authorize a request, renewed in a thread before they expire.

    Args:
        credentials: from google-auth; None for no authorization.
        patience: seconds to wait for a token if there is none.
        clock: returns seconds, never decreasing.

    Attributes:
        clock: as above.
        current: the headers that `headers` returns without waiting.
        renew_at: the time until which `current` can be used, in seconds of the clock.
    """

    def __init__(
        self,
        credentials: Credentials | None,
        *,
        patience: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._credentials = credentials
        self.clock = clock
        self.current: Mapping[str, str] = {}
        self.renew_at = self._valid_until = _FOREVER if credentials is None else 0.0
        self._renewal: asyncio.Task[None] | None = None

    async def headers(self) -> Mapping[str, str]:
        """Return the headers.

        Raises:
            NoTokenError: there is no token, and none can be obtained now.
        """
        now = self.clock()
        if now < self.renew_at:
            return self.current
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
        if now >= self._valid_until:
            # Not awaited directly, because cancelling one request must not cancel the renewal for
            # others.
            await asyncio.wait([self._renewal], timeout=self._patience)
            if self.clock() >= self._valid_until:
                raise NoTokenError
        return self.current

    def reject(self, headers: Mapping[str, str]) -> None:
        """Report that these headers were rejected (401)."""
        if headers is self.current and self._credentials is not None:
            self.renew_at = self._valid_until = 0.0

    async def close(self) -> None:
        """Wait for the thread, if there is one."""
        if self._renewal is not None:
            await self._renewal

    async def _renew(self) -> None:
        try:
            lifetime = await asyncio.to_thread(self._fetch)
        except GoogleAuthError as error:
            _log.warning(
                "cannot get an access token for the bucket: %s",
                " ".join(str(error).split()),
                extra=failure("no_access_token"),
            )
            self.renew_at = min(self.clock() + _RETRY_SECONDS, self._valid_until)
        else:
            now = self.clock()
            self._valid_until = now + max(1.0, lifetime - _MARGIN_SECONDS)
            self.renew_at = now + max(1.0, lifetime - _RENEW_SECONDS)
        finally:
            self._renewal = None

    def _fetch(self) -> float:
        """Fetch a token; return its remaining validity in seconds."""
        assert self._credentials is not None  # noqa: S101 - for the type checker
        # Otherwise each attempt may take two minutes if the token server does not respond.
        request = functools.partial(Request(), timeout=_FETCH_SECONDS)
        self._credentials.refresh(request)
        headers: dict[str, str] = {}
        self._credentials.apply(headers)
        self.current = headers
        expiry = self._credentials.expiry
        if expiry is None:
            return _FOREVER
        lifetime: timedelta = expiry.replace(tzinfo=UTC) - datetime.now(UTC)
        return lifetime.total_seconds()
