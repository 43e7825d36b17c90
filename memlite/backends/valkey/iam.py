"""Google IAM access tokens in place of a password, for Memorystore for Valkey.

A token is valid for an hour. A connection authenticated with it stays open for longer; each new
connection gets the current token. See
https://cloud.google.com/memorystore/docs/valkey/about-iam-auth.
"""

import asyncio
import json
import os
import urllib.request
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as NoConnectionError

__all__ = ["HOST_VARIABLE", "AccessTokens"]

HOST_VARIABLE: Final = "GCE_METADATA_HOST"
"""Specifies another metadata server, as for Google's own libraries."""

_HOST: Final = "metadata.google.internal"
_PATH: Final = "/computeMetadata/v1/instance/service-accounts/default/token"
_SECONDS: Final = 10.0
# A token is replaced this long before it expires.
_EARLY: Final = 120.0


class AccessTokens(CredentialProvider):
    """The tokens of this machine's service account, from its metadata server.

    Args:
        user: the user to authenticate as; empty for the store's default user.
        environment: may specify another metadata server.
        clock: returns seconds that never decrease.
    """

    def __init__(
        self,
        user: str = "",
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._user = user
        self._host = environment.get(HOST_VARIABLE) or _HOST
        self._clock = clock
        self._token = ""
        self._until = 0.0
        self._turn = asyncio.Lock()

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """Return a token, if possible one that is valid for at least two minutes.

        Raises:
            ConnectionError: of redis-py: the metadata server has none.
        """
        async with self._turn:
            if not self._token or self._clock() >= self._until:
                began = self._clock()
                self._token, seconds = await asyncio.to_thread(self._ask)
                self._until = began + seconds - _EARLY
        return (self._user, self._token) if self._user else (self._token,)

    def _ask(self) -> tuple[str, float]:
        request = urllib.request.Request(
            f"http://{self._host}{_PATH}", headers={"Metadata-Flavor": "Google"}
        )
        try:
            # An outbound HTTP proxy must not see the token.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=_SECONDS) as reply:
                found = json.load(reply)
            return str(found["access_token"]), float(found["expires_in"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise NoConnectionError(
                f"cannot get an access token from the metadata server at {self._host}: {reason}"
            ) from None
