"""Buckets and listings."""

import json

import pytest

from memlite.testing.gcs_emulator.listing import Selection, list_page
from memlite.testing.gcs_emulator.model import Attributes
from tests.unit.testing.gcs_emulator.test_api import Client, reason

BUCKETS = "/storage/v1/b?project=p"
BUCKET = "/storage/v1/b/bkt"


@pytest.fixture
def client():
    return Client()


# Buckets


def test_a_bucket_and_its_resource(client):
    made = client.json("POST", BUCKETS, {"name": "new-one", "location": "europe-west1"})
    assert (made["name"], made["location"], made["metageneration"]) == (
        "new-one", "EUROPE-WEST1", "1",
    )  # fmt: skip
    assert made["softDeletePolicy"]["retentionDurationSeconds"] == "604800"
    assert made["iamConfiguration"]["uniformBucketLevelAccess"] == {"enabled": False}
    assert client.json("GET", "/storage/v1/b/new-one") == made
    assert client.ask("DELETE", "/storage/v1/b/new-one").status == 204
    response = client.ask("GET", "/storage/v1/b/new-one")
    assert (response.status, reason(response)) == (404, "notFound")


def test_a_bucket_that_already_exists(client):
    response = client.ask("POST", BUCKETS, {"name": "bkt"})
    assert (response.status, reason(response)) == (409, "conflict")


@pytest.mark.parametrize(
    "name", ["ab", "A-bucket", "-abc", "abc-", "a..b", "goog-x", "x" * 64, "a/b", "a b", ""]
)
def test_invalid_bucket_names(client, name):
    assert client.ask("POST", BUCKETS, {"name": name}).status == 400


@pytest.mark.parametrize("name", ["abc", "a_b-c", "0ab", "x" * 63, f"{'x' * 60}.com"])
def test_valid_bucket_names(client, name):
    assert client.json("POST", BUCKETS, {"name": name})["name"] == name


def test_required_parameters_and_fields(client):
    assert client.ask("POST", "/storage/v1/b", {"name": "abc"}).status == 400
    assert client.ask("POST", BUCKETS, {}).status == 400
    assert client.ask("GET", "/storage/v1/b").status == 400


def test_patching_a_bucket(client):
    rule = {"action": {"type": "Delete"}, "condition": {"daysSinceCustomTime": 0}}
    changed = client.json("PATCH", BUCKET, {"lifecycle": {"rule": [rule]}, "labels": {"a": "b"}})
    assert (changed["lifecycle"], changed["metageneration"]) == ({"rule": [rule]}, "2")
    access = {"uniformBucketLevelAccess": {"enabled": True}}
    changed = client.json(
        "PATCH", BUCKET, {"labels": {"a": None, "c": "d"}, "iamConfiguration": access}
    )
    assert changed["labels"] == {"c": "d"}
    assert changed["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"] is True
    off = client.json("PATCH", BUCKET, {"softDeletePolicy": {"retentionDurationSeconds": 0}})
    assert off["softDeletePolicy"] == {"retentionDurationSeconds": "0"}
    replaced = client.json("PUT", BUCKET, {"labels": {"e": "f"}})
    assert replaced["labels"] == {"e": "f"}
    assert "lifecycle" not in replaced
    assert replaced["softDeletePolicy"]["retentionDurationSeconds"] == "604800"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"softDeletePolicy": {"retentionDurationSeconds": 5}}, 400),
        ({"softDeletePolicy": {"retentionDurationSeconds": "x"}}, 400),
        ({"softDeletePolicy": 5}, 400),
        ({"location": 5}, 400),
        ({"versioning": {"enabled": True}}, 501),
        ({"retentionPolicy": {"retentionPeriod": "9"}}, 501),
        ({"unheardOf": 1}, 501),
        ({"versioning": {"enabled": False}, "cors": []}, 200),
    ],
)
def test_fields_of_buckets(client, fields, status):
    assert client.ask("PATCH", BUCKET, fields).status == status


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("ifMetagenerationMatch=2", 412),
        ("ifMetagenerationNotMatch=1", 412),
        ("ifGenerationMatch=1", 501),
        ("ifMetagenerationMatch=1", 200),
        ("ifMetagenerationNotMatch=2", 200),
    ],
)
def test_preconditions_on_buckets(client, method, condition, status):
    response = client.ask(method, f"{BUCKET}?{condition}", b"{}")
    if (method, condition) == ("GET", "ifMetagenerationNotMatch=1"):
        status = 304
    assert response.status == (204 if (method, status) == ("DELETE", 200) else status)


def test_a_bucket_with_objects_is_not_deleted(client):
    client.put()
    response = client.ask("DELETE", BUCKET)
    assert (response.status, reason(response)) == (409, "conflict")


def test_listing_buckets(client):
    for name in ("aaa", "aab", "zzz"):
        client.json("POST", BUCKETS, {"name": name})
    page = client.json("GET", BUCKETS + "&maxResults=2")
    assert [item["name"] for item in page["items"]] == ["aaa", "aab"]
    page = client.json("GET", f"{BUCKETS}&maxResults=2&pageToken={page['nextPageToken']}")
    assert [item["name"] for item in page["items"]] == ["bkt", "zzz"]
    assert "nextPageToken" not in page
    assert len(client.json("GET", BUCKETS + "&prefix=aa")["items"]) == 2


def test_permissions(client):
    target = f"{BUCKET}/iam/testPermissions?permissions=a.b&permissions=c.d"
    assert client.json("GET", target)["permissions"] == ["a.b", "c.d"]
    assert client.ask("GET", target.replace("bkt", "other")).status == 404
    assert client.ask("GET", target.partition("?")[0]).status == 400


# Listing


NAMES = [
    "a", "a/", "a/b", "a/b/c", "a/d", "ab", "b//", "b//c", "z", "z/\U0010ffff", "z/\U0010ffffx",
    "z0", "é/x", "\U0010ffff/a", "😀",
]  # fmt: skip


@pytest.fixture
def bucket(client):
    for name in reversed(NAMES):
        client.store.insert("bkt", name, b"", Attributes())
    return client.store.bucket("bkt")


def listed(bucket, **selection):
    """Return the names and prefixes from all pages of a listing."""
    names, prefixes, token = [], [], ""
    while True:
        page = list_page(bucket, Selection(page_token=token, **selection))
        assert 0 < len(page.items) + len(page.prefixes) <= selection.get("max_results", 1000) or (
            not page.next_token
        )
        names += [item.name for item in page.items]
        prefixes += page.prefixes
        token = page.next_token
        if not token:
            return names, prefixes


def expected(prefix="", delimiter="", start="", end="", trailing=False):
    """Return the expected names and prefixes, computed directly from the definition."""
    names, prefixes = [], []
    for name in sorted(NAMES, key=str.encode):
        if not name.startswith(prefix) or name < start or (end and name >= end):
            continue
        found = name.find(delimiter, len(prefix)) if delimiter else -1
        if found >= 0:
            prefixes.append(name[: found + len(delimiter)])
        if found < 0 or (trailing and name.endswith(delimiter) and name == prefixes[-1]):
            names.append(name)
    return names, list(dict.fromkeys(prefixes))


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("trailing", [False, True])
@pytest.mark.parametrize("delimiter", ["", "/", "//", "b"])
@pytest.mark.parametrize(
    ("prefix", "start", "end"),
    [("", "", ""), ("a", "", ""), ("a/", "", ""), ("", "a/c", "z"), ("z/", "z/", ""),
     ("a", "0", "a/d"), ("nothing", "", ""), ("", "é", "")],
)  # fmt: skip
def test_listing(bucket, prefix, start, end, delimiter, trailing, size):
    assert listed(
        bucket, prefix=prefix, delimiter=delimiter, start=start, end=end,
        include_trailing_delimiter=trailing, max_results=size,
    ) == expected(prefix, delimiter, start, end, trailing)  # fmt: skip


def test_a_listing_through_the_api(client, bucket):
    page = client.json("GET", f"{BUCKET}/o?prefix=a&delimiter=/&maxResults=2")
    assert page["kind"] == "storage#objects"
    assert [item["name"] for item in page["items"]] == ["a"]
    assert page["prefixes"] == ["a/"]
    token = page["nextPageToken"]
    page = client.json("GET", f"{BUCKET}/o?prefix=a&delimiter=/&maxResults=2&pageToken={token}")
    assert [item["name"] for item in page["items"]] == ["ab"]
    assert not {"prefixes", "nextPageToken"} & page.keys()
    assert client.ask("GET", "/storage/v1/b/other/o").status == 404


def test_paging_is_not_affected_by_deletions(client, bucket):
    page = client.json("GET", f"{BUCKET}/o?maxResults=2")
    for name in list(bucket.objects):
        if name <= "a/b":
            client.store.delete("bkt", name)
    rest = client.json("GET", f"{BUCKET}/o?pageToken={page['nextPageToken']}")
    assert rest["items"][0]["name"] == "a/b/c"


def test_a_page_has_at_most_1000_items(client):
    for number in range(1001):
        client.store.insert("bkt", f"{number}", b"", Attributes())
    page = client.json("GET", f"{BUCKET}/o?maxResults=5000")
    assert len(page["items"]) == 1000
    page = client.json("GET", f"{BUCKET}/o?pageToken={page['nextPageToken']}")
    assert len(page["items"]) == 1


@pytest.mark.parametrize(
    "parameters",
    ["maxResults=0", "maxResults=x", "pageToken=x", "pageToken=YQ==", "versions=maybe"],
)
def test_listings_that_are_refused(client, parameters):
    response = client.ask("GET", f"{BUCKET}/o?{parameters}")
    assert response.status == 400, json.loads(response.body)
