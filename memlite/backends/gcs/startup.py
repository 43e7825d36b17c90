"""Checks of the bucket before the first client is served, with google-cloud-storage."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import google.auth
from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.cloud import storage
from requests.exceptions import RequestException

from memlite.backends.gcs.options import Options
from memlite.core.errors import StartError

__all__ = ["check"]

_log = logging.getLogger("memlite")

_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_PERMISSIONS = (
    "storage.objects.get",
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.list",
)
_REQUEST_SECONDS = 5.0
# google-auth takes some seconds to find out that there is no metadata server.
_CHECK_SECONDS = 20.0
_T = TypeVar("_T")


async def check(options: Options) -> Credentials | None:
    """Return credentials with which the bucket can be used; None if none are needed.

    Raises:
        StartError: there are no credentials, or they do not grant access. The text says what to do.
    """
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return await _in_thread(lambda: _check(options))
    except TimeoutError:
        raise StartError(
            f"--backend: {options.shown}: no answer from {options.endpoint} within "
            f"{_CHECK_SECONDS:g} s; check network and endpoint"
        ) from None


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Run `work` in a daemon thread, which, unlike an executor's, does not delay the exit."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()

    def settle(value: _T | None, error: BaseException | None) -> None:
        if outcome.cancelled():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)  # type: ignore[arg-type]  # a value, if there is no error

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except Exception as caught:  # noqa: BLE001 - raised in the caller
            error = caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="gcs-check", daemon=True).start()
    return await outcome


def _check(options: Options) -> Credentials | None:
    credentials = _find_credentials(options)
    # Otherwise the library checks the bucket after each 404, in a separate thread.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    with storage.Client(
        project=options.project or None,
        credentials=credentials or AnonymousCredentials(),
        client_options={"api_endpoint": options.endpoint},
    ) as client:
        bucket = client.bucket(options.bucket)
        try:
            seen = _look_at_policies(bucket, options)
            _check_permissions(bucket, options, seen=seen)
        except NotFound:
            raise _cannot(
                options,
                f"bucket {options.bucket} does not exist; create it with: gcloud storage buckets "
                f"create gs://{options.bucket}",
            ) from None
        except GoogleAuthError as error:
            raise _cannot(
                options,
                f"cannot get an access token from Google ({_first_line(error)}); run gcloud auth "
                "application-default login, or check the service account",
            ) from None
        except GoogleAPIError as error:
            raise _cannot(options, _first_line(error)) from None
        except (RequestException, OSError) as error:
            raise _cannot(
                options,
                f"no answer from {options.endpoint} ({_cause(error)}); check network and endpoint",
            ) from None
    return credentials


def _find_credentials(options: Options) -> Credentials | None:
    if options.anonymous:
        return None
    try:
        credentials, _ = google.auth.default(
            scopes=_SCOPES, quota_project_id=options.project or None
        )
    except DefaultCredentialsError as error:
        named = "GOOGLE_APPLICATION_CREDENTIALS" in os.environ
        raise _cannot(
            options,
            f"GOOGLE_APPLICATION_CREDENTIALS cannot be used ({_first_line(error)})"
            if named
            else "no Google credentials; run gcloud auth application-default login, set "
            "GOOGLE_APPLICATION_CREDENTIALS, or run on a VM with a service account",
        ) from None
    return credentials


def _check_permissions(bucket: Any, options: Options, *, seen: bool) -> None:
    try:
        granted = bucket.test_iam_permissions(
            list(_PERMISSIONS), timeout=_REQUEST_SECONDS, retry=None
        )
    except Forbidden:
        granted = []
    except NotFound:
        if not seen:
            raise
        # Some emulators have the bucket, but do not support this request.
        _log.info("%s: could not check the permissions", options.shown)
        return
    lacking = [name for name in _PERMISSIONS if name not in granted]
    if lacking:
        raise _cannot(
            options,
            f"missing permissions: {', '.join(lacking)}; grant roles/storage.objectUser on the "
            "bucket",
        )


def _look_at_policies(bucket: Any, options: Options) -> bool:
    """Warn of settings with unexpected costs; return whether the bucket was accessible."""
    try:
        bucket.reload(timeout=_REQUEST_SECONDS, retry=None)
    except Forbidden:
        _log.warning(
            "%s: no permission for storage.buckets.get; did not check the soft-delete policy and "
            "versioning",
            options.shown,
        )
        return False
    if seconds := bucket.soft_delete_policy.retention_duration_seconds:
        _log.warning(
            "%s: the soft-delete policy retains overwritten and deleted objects for %g days, at a "
            "charge; to turn it off: gcloud storage buckets update gs://%s --clear-soft-delete",
            options.shown,
            seconds / 86400,
            options.bucket,
        )
    if bucket.versioning_enabled:
        _log.warning(
            "%s: object versioning retains overwritten and deleted objects, at a charge; to turn "
            "it off: gcloud storage buckets update gs://%s --no-versioning",
            options.shown,
            options.bucket,
        )
    return True


def _cannot(options: Options, text: str) -> StartError:
    return StartError(f"--backend: {options.shown}: {text}")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__


def _cause(error: BaseException) -> str:
    """Return the innermost message of an error that wraps others."""
    inner: BaseException | None = error
    while inner is not None:
        error, inner = inner, inner.__cause__ or inner.__context__
    reason = getattr(error, "strerror", None) or _first_line(error)
    return str(reason)
