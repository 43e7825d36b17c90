"""The JSON API's methods on buckets.

Reference: https://cloud.google.com/storage/docs/json_api/v1/buckets. A bucket's lifecycle rules,
soft-delete policy and access settings are stored and returned, but have no effect.
"""

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.listing import MAX_RESULTS
from memlite.testing.gcs_emulator.messages import Request, Response, json_response, parse_number
from memlite.testing.gcs_emulator.model import Bucket, rfc3339
from memlite.testing.gcs_emulator.preconditions import Preconditions
from memlite.testing.gcs_emulator.store import Store

__all__ = ["BucketsApi"]

_CONDITIONS = frozenset(("ifMetagenerationMatch", "ifMetagenerationNotMatch"))
_LIST = frozenset(("project", "prefix", "maxResults", "pageToken"))
# Fields that are stored as received.
_STORED_FIELDS = frozenset(
    ("iamConfiguration", "labels", "lifecycle", "location", "softDeletePolicy", "storageClass")
)
_OUTPUT_ONLY = frozenset(
    (
        "etag",
        "generation",
        "id",
        "kind",
        "locationType",
        "metageneration",
        "name",
        "projectNumber",
        "selfLink",
        "timeCreated",
        "updated",
    )
)
_PROJECT_NUMBER = "1"
# https://cloud.google.com/storage/docs/soft-delete#retention-duration
_DEFAULT_RETENTION = 604_800
_RETENTION = range(604_800, 7_776_001)


class BucketsApi:
    """The methods on buckets.

    Args:
        store: the store that holds the buckets.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self, request: Request) -> Response:
        """Answer ``buckets.list``."""
        request.check(_LIST)
        if not request.query.get("project"):
            raise GcsError.required("project")
        limit = min(request.number("maxResults") or MAX_RESULTS, MAX_RESULTS)
        prefix, after = request.query.get("prefix", ""), request.query.get("pageToken", "")
        names = sorted(name for name in self._store.buckets if name.startswith(prefix))
        # The page token is the last name on the previous page.
        names = [name for name in names if name > after]
        answer: dict[str, Any] = {"kind": "storage#buckets"}
        if len(names) > limit:
            names = names[:limit]
            answer["nextPageToken"] = names[-1]
        if names:
            answer["items"] = [_resource(request, self._store.buckets[name]) for name in names]
        return json_response(answer)

    def insert(self, request: Request) -> Response:
        """Answer ``buckets.insert``."""
        request.check(frozenset(("project",)))
        if not request.query.get("project"):
            raise GcsError.required("project")
        fields = request.json()
        name = fields.get("name")
        if not isinstance(name, str):
            raise GcsError.required("name")
        bucket = self._store.insert_bucket(name, _changed_properties({}, fields))
        return json_response(_resource(request, bucket))

    def get(self, request: Request, name: str) -> Response:
        """Answer ``buckets.get``."""
        request.check(_CONDITIONS)
        return json_response(_resource(request, self._checked_bucket(request, name, reading=True)))

    def patch(self, request: Request, name: str) -> Response:
        """Answer ``buckets.patch``: change the given fields; null removes one."""
        request.check(_CONDITIONS)
        bucket = self._checked_bucket(request, name)
        self._store.update_bucket(bucket, _changed_properties(bucket.properties, request.json()))
        return json_response(_resource(request, bucket))

    def update(self, request: Request, name: str) -> Response:
        """Answer ``buckets.update``: replace all fields; missing ones get their defaults."""
        request.check(_CONDITIONS)
        bucket = self._checked_bucket(request, name)
        fixed = {key: bucket.properties[key] for key in ("location",) if key in bucket.properties}
        self._store.update_bucket(bucket, _changed_properties(fixed, request.json()))
        return json_response(_resource(request, bucket))

    def delete(self, request: Request, name: str) -> Response:
        """Answer ``buckets.delete``."""
        request.check(_CONDITIONS)
        self._store.delete_bucket(self._checked_bucket(request, name))
        return Response(204)

    def test_permissions(self, request: Request, name: str) -> Response:
        """Answer ``buckets.testIamPermissions``: every caller has all permissions."""
        request.check(frozenset(("permissions",)))
        self._store.bucket(name)
        pairs = parse_qsl(request.target.partition("?")[2])
        permissions = [value for key, value in pairs if key == "permissions"]
        if not permissions:
            raise GcsError.required("permissions")
        return json_response(
            {"kind": "storage#testIamPermissionsResponse", "permissions": permissions}
        )

    def _checked_bucket(self, request: Request, name: str, *, reading: bool = False) -> Bucket:
        bucket = self._store.bucket(name)
        conditions = Preconditions(
            metageneration_match=request.number("ifMetagenerationMatch"),
            metageneration_not_match=request.number("ifMetagenerationNotMatch"),
        )
        conditions.check(bucket, reading=reading)
        return bucket


def _resource(request: Request, bucket: Bucket) -> dict[str, Any]:
    properties = bucket.properties
    access = properties.get("iamConfiguration", {})
    policy = properties.get("softDeletePolicy") or {}
    retention = int(policy.get("retentionDurationSeconds", _DEFAULT_RETENTION))
    resource = {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{request.base_url}/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": _PROJECT_NUMBER,
        "generation": str(bucket.generation),
        "metageneration": str(bucket.metageneration),
        "etag": _etag(bucket),
        "timeCreated": rfc3339(bucket.created),
        "updated": rfc3339(bucket.updated),
        "location": str(properties.get("location", "US")).upper(),
        "locationType": "multi-region",
        "storageClass": properties.get("storageClass", "STANDARD"),
        "iamConfiguration": {
            "publicAccessPrevention": "inherited",
            "uniformBucketLevelAccess": {"enabled": False},
            **access,
        },
        "softDeletePolicy": {
            "retentionDurationSeconds": str(retention),
            **({"effectiveTime": rfc3339(bucket.created)} if retention else {}),
        },
    }
    for field in ("labels", "lifecycle"):
        if properties.get(field):
            resource[field] = properties[field]
    return resource


def _etag(bucket: Bucket) -> str:
    text = f"{bucket.name} {bucket.created} {bucket.metageneration}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _changed_properties(properties: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties with the request's fields merged in.

    Raises:
        GcsError: 400, or 501 for an unsupported field whose value requests something.
    """
    for field, value in fields.items():
        if field not in _STORED_FIELDS and field not in _OUTPUT_ONLY and not _is_off(value):
            raise GcsError.not_emulated(f"the field {field!r} of buckets")
    changed = _merged(properties, {key: fields[key] for key in fields.keys() & _STORED_FIELDS})
    for field in ("labels", "iamConfiguration", "lifecycle", "softDeletePolicy"):
        if not isinstance(changed.get(field, {}), dict):
            raise GcsError.invalid(f"Invalid value for {field}: it must be an object.", field)
    for field in ("location", "storageClass"):
        if not isinstance(changed.get(field, ""), str):
            raise GcsError.invalid(f"Invalid value for {field}: it must be a string.", field)
    policy = changed.get("softDeletePolicy")
    if policy is not None:
        retention = parse_number(
            "softDeletePolicy.retentionDurationSeconds",
            str(policy.get("retentionDurationSeconds", _DEFAULT_RETENTION)),
        )
        if retention and retention not in _RETENTION:
            raise GcsError.invalid(
                "The soft delete retention must be 0 or from 7 to 90 days.", "softDeletePolicy"
            )
    return changed


def _is_off(value: object) -> bool:
    """Return whether a value is empty or false, as in ``{"versioning": {"enabled": false}}``."""
    if isinstance(value, dict):
        return all(_is_off(part) for part in value.values())
    return not value


def _merged(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7396)."""
    after = dict(before)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        elif isinstance(value, dict):
            nested = after.get(key)
            after[key] = _merged(nested if isinstance(nested, dict) else {}, value)
        else:
            after[key] = value
    return after
