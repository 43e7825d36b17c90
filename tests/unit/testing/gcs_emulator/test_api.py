"""The emulator's API without a server: every method, its preconditions and its errors."""

import gzip
import json
from urllib.parse import quote

import pytest
from multidict import CIMultiDict

from memlite.testing.gcs_emulator import Store
from memlite.testing.gcs_emulator.api import Api
from memlite.testing.gcs_emulator.messages import Request

OBJECT = "/storage/v1/b/bkt/o/key"
UPLOAD = "/upload/storage/v1/b/bkt/o?uploadType=media&name="
CONDITIONS = (
    "ifGenerationMatch",
    "ifGenerationNotMatch",
    "ifMetagenerationMatch",
    "ifMetagenerationNotMatch",
)


class Client:
    """Sends requests to its own API instance, with a clock controlled by the test."""

    def __init__(self, **options):
        self.now = 1_700_000_000.0
        self.store = Store(clock=lambda: self.now, **options)
        self.store.insert_bucket("bkt")
        self.api = Api(self.store)

    def ask(self, method, target, body=b"", **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        named = CIMultiDict({name.replace("_", "-"): text for name, text in headers.items()})
        return self.api.handle(Request(method, target, named, body))

    def json(self, method, target, body=b"", **headers):
        response = self.ask(method, target, body, **headers)
        assert response.status == 200, response.body
        return json.loads(response.body)

    def put(self, name="key", content=b"value", parameters="", **headers):
        return self.json("POST", UPLOAD + quote(name, safe="") + parameters, content, **headers)

    def content(self, name="key"):
        return self.ask("GET", f"/storage/v1/b/bkt/o/{quote(name, safe='')}?alt=media").body


@pytest.fixture
def client():
    return Client()


def reason(response):
    return json.loads(response.body)["error"]["errors"][0]["reason"]


# Objects: the basics


def test_an_object_and_its_resource(client):
    made = client.put("a/b c", b"hello", content_type="text/plain")
    assert made["id"] == f"bkt/a/b c/{made['generation']}"
    assert made["metageneration"] == "1"
    assert made["size"] == "5"
    assert made["crc32c"] == "mnG7TA=="
    assert made["md5Hash"] == "XUFAKrxLKna5cZ2REBfFkg=="
    assert made["timeCreated"] == made["updated"] == "2023-11-14T22:13:20.000Z"
    assert made["contentType"] == "text/plain"
    assert client.json("GET", "/storage/v1/b/bkt/o/a%2Fb%20c") == made


def test_content_and_its_headers(client):
    made = client.put("key", b"hello", content_type="text/plain")
    response = client.ask("GET", OBJECT + "?alt=media")
    assert (response.status, response.body) == (200, b"hello")
    headers = {name.lower(): value for name, value in response.headers.items()}
    assert headers["x-goog-generation"] == made["generation"]
    assert headers["x-goog-metageneration"] == "1"
    assert headers["x-goog-hash"] == f"crc32c={made['crc32c']},md5={made['md5Hash']}"
    assert headers["x-goog-stored-content-length"] == "5"
    assert headers["etag"] == made["etag"]
    assert headers["content-type"] == "text/plain"


@pytest.mark.parametrize("path", [OBJECT, "/download" + OBJECT])
def test_content_through_either_path(client, path):
    client.put()
    assert client.ask("GET", path + "?alt=media").body == b"value"


@pytest.mark.parametrize(
    "name",
    ["a", "a/b/c", "ü€😀", " ", "%2F", "a%20b", "a+b", "?&=#", "\x01\x7f", "x" * 1024, "é" * 512,
     "...", "/", "//a", "a/./b/../c", "\U0010ffff", "+", "o/compose"],
)  # fmt: skip
def test_names(client, name):
    made = client.put(name, name.encode())
    assert made["name"] == name
    assert client.content(name) == name.encode()
    assert [item["name"] for item in client.json("GET", "/storage/v1/b/bkt/o")["items"]] == [name]
    assert client.ask("DELETE", f"/storage/v1/b/bkt/o/{quote(name, safe='')}").status == 204
    assert client.store.bucket("bkt").objects == {}


@pytest.mark.parametrize(
    "name", ["x" * 1025, "é" * 513, "a\nb", "a\rb", ".", "..", ".well-known/acme-challenge/x"]
)
def test_invalid_object_names(client, name):
    response = client.ask("POST", UPLOAD + quote(name, safe=""), b"")
    assert (response.status, reason(response)) == (400, "invalid")


@pytest.mark.parametrize("target", ["/storage/v1/b/bkt/o/%ff", UPLOAD + "%ff"])
def test_names_that_are_not_utf_8(client, target):
    method = "POST" if target.startswith("/upload") else "GET"
    assert client.ask(method, target).status == 400


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT", "DELETE"])
def test_absent_objects_and_buckets(client, method):
    response = client.ask(method, OBJECT, b"{}")
    assert (response.status, reason(response)) == (404, "notFound")
    assert b"No such object: bkt/key" in response.body
    response = client.ask(method, OBJECT.replace("bkt", "other"), b"{}")
    assert (response.status, reason(response)) == (404, "notFound")


def test_reading_the_content_of_an_absent_object_is_a_plain_text_error(client):
    response = client.ask("GET", OBJECT + "?alt=media")
    assert (response.status, response.body) == (404, b"No such object: bkt/key")


def test_writes_create_generations_and_updates_create_metagenerations(client):
    first = client.put()
    assert client.json("PATCH", OBJECT, {"contentType": "a/b"})["metageneration"] == "2"
    changed = client.json("PATCH", OBJECT, {})
    assert (changed["metageneration"], changed["generation"]) == ("3", first["generation"])
    second = client.put()
    assert second["generation"] != first["generation"]
    assert second["metageneration"] == "1"


def test_an_old_generation_is_gone(client):
    first = client.put()
    client.put()
    for method in ("GET", "PATCH", "DELETE"):
        response = client.ask(method, f"{OBJECT}?generation={first['generation']}", b"{}")
        assert response.status == 404
    assert client.content() == b"value"


# Ranges


@pytest.mark.parametrize(
    ("requested", "status", "body", "content_range"),
    [
        ("bytes=0-1", 206, b"he", "bytes 0-1/5"),
        ("bytes=1-", 206, b"ello", "bytes 1-4/5"),
        ("bytes=3-99", 206, b"lo", "bytes 3-4/5"),
        ("bytes=-2", 206, b"lo", "bytes 3-4/5"),
        ("bytes=-9", 206, b"hello", "bytes 0-4/5"),
        ("bytes=5-", 416, None, "bytes */5"),
        ("bytes=-0", 416, None, "bytes */5"),
    ],
)
def test_ranges(client, requested, status, body, content_range):
    client.put("key", b"hello")
    response = client.ask("GET", OBJECT + "?alt=media", range=requested)
    assert response.status == status
    assert body in (None, response.body)
    assert response.headers["Content-Range"] == content_range


def test_several_ranges_are_not_emulated(client):
    client.put("key", b"hello")
    assert client.ask("GET", OBJECT + "?alt=media", range="bytes=0-1,3-4").status == 501


def test_gzipped_content_is_sent_unchanged_to_clients_that_accept_it(client):
    packed = gzip.compress(b"value")
    client.put("key", packed, "&contentEncoding=gzip")
    response = client.ask("GET", OBJECT + "?alt=media", accept_encoding="gzip")
    assert (response.body, response.headers["Content-Encoding"]) == (packed, "gzip")
    assert client.ask("GET", OBJECT + "?alt=media").status == 501


# Preconditions


def parameters(made, condition, holds):
    """Return a precondition on the object `made` that holds, or one that fails."""
    kind = "metageneration" if "Meta" in condition else "generation"
    current, other = int(made[kind]), int(made[kind]) + 1
    match = holds if "NotMatch" not in condition else not holds
    return f"{condition}={current if match else other}"


VERBS = {
    "get": ("GET", OBJECT + "?", b""),
    "media": ("GET", OBJECT + "?alt=media&", b""),
    "insert": ("POST", UPLOAD + "key&", b"new"),
    "patch": ("PATCH", OBJECT + "?", b"{}"),
    "update": ("PUT", OBJECT + "?", b"{}"),
    "delete": ("DELETE", OBJECT + "?", b""),
    "copy": ("POST", "/storage/v1/b/bkt/o/other/copyTo/b/bkt/o/key?", b""),
    "rewrite": ("POST", "/storage/v1/b/bkt/o/other/rewriteTo/b/bkt/o/key?", b""),
    "compose": ("POST", OBJECT + "/compose?", b'{"sourceObjects": [{"name": "other"}]}'),
}


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("verb", VERBS)
def test_every_precondition_on_every_verb(client, verb, condition, holds):
    client.put("other")
    made = client.put()
    method, target, body = VERBS[verb]
    response = client.ask(method, target + parameters(made, condition, holds), body)
    if verb == "compose" and "NotMatch" in condition:
        assert response.status == 501  # GCS has no such parameter there
    elif holds:
        assert response.status in (200, 204)
    elif "NotMatch" in condition and verb in ("get", "media"):
        assert (response.status, response.body) == (304, b"")
    else:
        assert response.status == 412
        if verb != "media":
            assert reason(response) == "conditionNotMet"
    unchanged = client.store.bucket("bkt").objects.get("key")
    if not holds:
        assert (str(unchanged.generation), unchanged.metageneration) == (made["generation"], 1)


@pytest.mark.parametrize("verb", VERBS)
def test_generation_0_never_matches_an_existing_object(client, verb):
    client.put("other")
    client.put()
    method, target, body = VERBS[verb]
    assert client.ask(method, target + "ifGenerationMatch=0", body).status == 412
    if verb != "compose":
        assert client.ask(method, target + "ifGenerationNotMatch=0", body).status in (200, 204)


@pytest.mark.parametrize("verb", ["insert", "copy", "rewrite", "compose"])
def test_preconditions_on_an_absent_destination(client, verb):
    client.put("other")
    method, target, body = VERBS[verb]
    for condition in CONDITIONS:
        response = client.ask(method, f"{target}{condition}=5", body)
        assert response.status == (501 if verb == "compose" and "NotMatch" in condition else 412), (
            condition
        )
    assert client.ask(method, target + "ifGenerationMatch=0", body).status == 200
    assert client.ask(method, target + "ifGenerationMatch=0", body).status == 412


@pytest.mark.parametrize("verb", ["get", "media", "patch", "update", "delete"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_absence_takes_precedence_over_preconditions(client, verb, condition):
    method, target, body = VERBS[verb]
    for value in (0, 5):
        assert client.ask(method, f"{target}{condition}={value}", body).status == 404


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("verb", ["copy", "rewrite"])
def test_preconditions_on_the_source(client, verb, condition, holds):
    made = client.put("other")
    method, target, body = VERBS[verb]
    parameter = parameters(made, condition, holds).replace("if", "ifSource", 1)
    assert client.ask(method, target + parameter, body).status == (200 if holds else 412)


def test_preconditions_in_compose(client):
    made = client.put("other")
    for generation, status in ((int(made["generation"]), 200), (5, 412)):
        source = {"name": "other", "objectPreconditions": {"ifGenerationMatch": generation}}
        body = {"sourceObjects": [source]}
        assert client.ask("POST", OBJECT + "/compose", body).status == status


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "9" * 30, "٣"])
def test_preconditions_that_are_not_numbers(client, value):
    client.put()
    response = client.ask("GET", f"{OBJECT}?ifGenerationMatch={quote(value)}")
    assert (response.status, reason(response)) == (400, "invalid")


def test_etags(client):
    etag = client.put()["etag"]
    for value, status in ((etag, 304), (f'"{etag}"', 304), ("*", 304), ("other", 200)):
        assert client.ask("GET", OBJECT, if_none_match=value).status == status
    for value, status in ((etag, 200), (f'"other", "{etag}"', 200), ("other", 412)):
        assert client.ask("GET", OBJECT + "?alt=media", if_match=value).status == status
    assert client.ask("DELETE", OBJECT, if_match=etag).status == 501
    client.ask("PATCH", OBJECT, b"{}")
    assert client.ask("GET", OBJECT, if_none_match=etag).status == 200


# Attributes


def test_patch_changes_only_the_given_attributes(client):
    client.put("key", b"value", content_type="text/plain")
    client.json("PATCH", OBJECT, {"metadata": {"a": "1", "b": "2"}, "cacheControl": "no-store"})
    changed = client.json("PATCH", OBJECT, {"metadata": {"a": None, "c": "3"}})
    assert changed["metadata"] == {"b": "2", "c": "3"}
    assert changed["contentType"] == "text/plain"
    assert changed["cacheControl"] == "no-store"
    assert "metadata" not in client.json("PATCH", OBJECT, {"metadata": None})


def test_update_replaces_everything(client):
    client.put("key", b"value", content_type="text/plain")
    client.json("PATCH", OBJECT, {"metadata": {"a": "1"}, "cacheControl": "no-store"})
    changed = client.json("PUT", OBJECT, {"metadata": {"b": "2"}, "id": "ignored", "size": "9"})
    assert changed["metadata"] == {"b": "2"}
    assert not {"contentType", "cacheControl"} & changed.keys()
    assert changed["size"] == "5"


def test_custom_metadata_is_sent_with_the_content(client):
    client.put()
    client.json("PATCH", OBJECT, {"metadata": {"Owner": "me"}})
    assert client.ask("GET", OBJECT + "?alt=media").headers["X-Goog-Meta-Owner"] == "me"


@pytest.mark.parametrize(
    "fields",
    [{"metadata": {"a": 1}}, {"metadata": "x"}, {"contentType": 5}, {"cacheControl": "a\nb"},
     {"customTime": "yesterday"}, {"customTime": "2024-01-01T00:00:00"}, {"customTime": 5},
     {"metadata": {"a": "x" * 8192}}],
)  # fmt: skip
def test_invalid_attributes(client, fields):
    client.put()
    assert client.ask("PATCH", OBJECT, fields).status == 400


@pytest.mark.parametrize("body", [b"{", b"[]", b"5", b'{"a": "\\ud800"}'])
def test_bodies_that_are_not_json_objects(client, body):
    client.put()
    response = client.ask("PATCH", OBJECT, body)
    assert (response.status, reason(response)) == (400, "parseError")


def test_custom_time_only_moves_forward(client):
    client.put()
    at = {"customTime": "2024-05-01T10:00:00Z"}
    assert client.json("PATCH", OBJECT, at)["customTime"] == "2024-05-01T10:00:00.000Z"
    assert client.ask("PATCH", OBJECT, {"customTime": "2024-05-01T09:59:59.999Z"}).status == 400
    assert client.ask("PATCH", OBJECT, {"customTime": None}).status == 400
    assert client.ask("PUT", OBJECT, {}).status == 400
    later = {"customTime": "2024-05-01T13:00:00+02:00"}
    assert client.json("PATCH", OBJECT, later)["customTime"] == "2024-05-01T11:00:00.000Z"
    assert client.json("PATCH", OBJECT, {"metadata": {"a": "b"}})["customTime"]
    assert "customTime" not in client.put()  # a new generation starts without one


# Copies


def test_copies_keep_the_attributes_or_replace_them(client):
    client.put("other", b"value", content_type="text/plain")
    target = "/storage/v1/b/bkt/o/other/{}/b/bkt/o/key"
    assert client.json("POST", target.format("copyTo"))["contentType"] == "text/plain"
    answer = client.json("POST", target.format("rewriteTo"), {"contentType": "a/b"})
    assert answer["done"] is True
    assert answer["totalBytesRewritten"] == answer["objectSize"] == "5"
    assert answer["resource"]["contentType"] == "a/b"
    assert client.content() == b"value"


def test_compose(client):
    for name in ("a", "b"):
        client.put(name, name.encode() * 3, content_type="text/x")
    body = {"sourceObjects": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}
    made = client.json("POST", OBJECT + "/compose", body)
    assert (made["componentCount"], made["contentType"]) == (3, "text/x")
    assert "md5Hash" not in made
    assert client.content() == b"aaabbbaaa"
    again = {"sourceObjects": [{"name": "key"}, {"name": "b"}], "destination": {}}
    assert client.json("POST", OBJECT + "/compose", again)["componentCount"] == 4
    for count, status in ((0, 400), (32, 200), (33, 400)):
        body = {"sourceObjects": [{"name": "a"}] * count}
        assert client.ask("POST", OBJECT + "/compose", body).status == status
    assert client.ask("POST", OBJECT + "/compose", {}).status == 400
    missing = {"sourceObjects": [{"name": "nowhere"}]}
    assert client.ask("POST", OBJECT + "/compose", missing).status == 404


# Batches


def test_a_batch(client):
    client.put()
    parts = [
        f"--x\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n{text}\r\n"
        for number, text in enumerate(
            [
                f"GET http://localhost{OBJECT} HTTP/1.1\r\nAccept: */*\r\n\r\n",
                f"PATCH {OBJECT} HTTP/1.1\r\nX: y\r\n\r\n{json.dumps({'contentType': 'a/b'})}",
                f"DELETE {OBJECT}?ifGenerationMatch=5 HTTP/1.1\r\n\r\n",
                f"DELETE {OBJECT} HTTP/1.1\r\n\r\n",
            ]
        )
    ]
    body = ("".join(parts) + "--x--").encode()
    content_type = "multipart/mixed; boundary=x"
    response = client.ask("POST", "/batch/storage/v1", body, content_type=content_type)
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("multipart/mixed; boundary=")
    assert response.body.count(b"HTTP/1.1 200 OK") == 2
    assert response.body.count(b"HTTP/1.1 412 Precondition Failed") == 1
    assert response.body.count(b"HTTP/1.1 204 No Content") == 1
    assert b"Content-ID: <response-3>" in response.body
    assert b'"contentType":"a/b"' in response.body


def test_batches_that_are_refused(client):
    refused = client.ask("POST", "/batch/storage/v1", b"", content_type="multipart/mixed")
    assert refused.status == 400
    part = f"--x\r\n\r\nGET /download{OBJECT} HTTP/1.1\r\n\r\n\r\n"
    kind = "multipart/mixed; boundary=x"
    body = f"{part}--x--".encode()
    assert client.ask("POST", "/batch/storage/v1", body, content_type=kind).status == 400
    body = f"{part * 101}--x--".encode()
    assert client.ask("POST", "/batch/storage/v1", body, content_type=kind).status == 400


# The XML API


def test_the_xml_api(client):
    response = client.ask(
        "PUT", "/bkt/a/b", b"hello", content_type="text/plain", x_goog_meta_owner="me"
    )
    assert response.status == 200
    generation = response.headers["X-Goog-Generation"]
    response = client.ask("GET", "/bkt/a/b")
    assert (response.body, response.headers["Content-Type"]) == (b"hello", "text/plain")
    assert client.json("GET", "/storage/v1/b/bkt/o/a%2Fb")["metadata"] == {"owner": "me"}
    for condition, expected in (("0", 412), (generation, 200)):
        conditions = {"x_goog_if_generation_match": condition}
        assert client.ask("GET", "/bkt/a%2Fb", **conditions).status == expected
        assert client.ask("PUT", "/bkt/other", b"", **conditions).status == (
            200 if condition == "0" else 412
        )
    assert client.ask("DELETE", "/bkt/a/b", x_goog_if_metageneration_match="2").status == 412
    assert client.ask("DELETE", "/bkt/a/b").status == 204
    response = client.ask("GET", "/bkt/a/b")
    assert response.status == 404
    assert b"<Code>NoSuchKey</Code>" in response.body


# Strictness


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", OBJECT + "?unheardOf=1"),
        ("GET", "/storage/v1/b/bkt/o?versions=true"),
        ("GET", "/storage/v1/b/bkt/o?softDeleted=true"),
        ("GET", "/storage/v1/b/bkt/o?matchGlob=*"),
        ("POST", UPLOAD + "key&kmsKeyName=k"),
        ("POST", UPLOAD + "key&predefinedAcl=private"),
        ("POST", OBJECT + "/restore?generation=5"),
        ("POST", "/storage/v1/b/bkt/o/a/moveTo/o/b"),
        ("GET", "/storage/v1/b/bkt/iam"),
        ("GET", "/storage/v1/b/bkt/notificationConfigs"),
        ("GET", "/storage/v1/projects/p/serviceAccount"),
        ("GET", "/bkt?list-type=2"),
        ("POST", "/bkt/key?uploads"),
        ("HEAD", OBJECT),
    ],
)
def test_unsupported_operations_are_reported(client, method, target):
    client.put()
    response = client.ask(method, target)
    assert response.status == 501
    assert b"The memlite GCS emulator does not support" in response.body


@pytest.mark.parametrize(
    "header",
    ["x-goog-encryption-key", "x-goog-if-generation-match", "if-modified-since",
     "x-http-method-override", "x-goog-meta-a"],
)  # fmt: skip
def test_unsupported_headers_are_reported(client, header):
    client.put()
    response = client.ask("GET", OBJECT + "?alt=media", **{header: "1"})
    assert response.status == 501
    assert client.ask("POST", UPLOAD + "new", b"", **{header: "1"}).status == 501


def test_unsupported_fields_are_reported(client):
    client.put()
    assert client.ask("PATCH", OBJECT, {"temporaryHold": True}).status == 501
    assert client.ask("PATCH", OBJECT, {"temporaryHold": False, "acl": []}).status == 200


@pytest.mark.parametrize(
    "parameters",
    ["prettyPrint=false", "fields=name", "projection=noAcl", "userProject=p", "alt=json"],
)
def test_harmless_parameters_are_ignored(client, parameters):
    client.put()
    assert client.ask("GET", f"{OBJECT}?{parameters}").status == 200


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ("name", {"name": "key"}),
        ("name,size", {"name": "key", "size": "5"}),
        ("nothing", {}),
        ("metadata/a", {"metadata": {"a": "1"}}),
        ("size,metadata(a,b)", {"size": "5", "metadata": {"a": "1", "b": "2"}}),
        ("metadata", {"metadata": {"a": "1", "b": "2", "c": "3"}}),
    ],
)
def test_selecting_fields(client, fields, left):
    client.put()
    client.json("PATCH", OBJECT, {"metadata": {"a": "1", "b": "2", "c": "3"}})
    assert client.json("GET", f"{OBJECT}?fields={quote(fields)}") == left


@pytest.mark.parametrize("fields", ["items/name", "items(name)", "*/name", "items(*(x),name)"])
def test_selecting_fields_in_lists(client, fields):
    client.put("a")
    client.put("b")
    answer = client.json("GET", f"/storage/v1/b/bkt/o?maxResults=1&fields={fields}")
    assert answer == {"items": [{"name": "a"}]}


def test_selecting_fields_of_uploads_and_all_fields(client):
    whole = client.put()
    assert client.put(parameters="&fields=generation").keys() == {"generation"}
    assert client.put(parameters="&fields=bucket") == {"bucket": "bkt"}
    assert client.put(parameters="&fields=*").keys() == whole.keys()


@pytest.mark.parametrize(
    "fields", ["a,", ",a", "a(b", "a)", "a/", "/a", "a()", "a b", "(a)", "a-b"]
)
def test_malformed_field_selections_have_no_side_effects(client, fields):
    assert client.ask("POST", f"{UPLOAD}new&fields={quote(fields)}", b"x").status == 400
    assert client.ask("GET", "/storage/v1/b/bkt/o/new").status == 404


def test_field_selections_do_not_affect_content_and_errors(client):
    client.put(content=b'{"a": 1}', Content_Type="application/json; charset=UTF-8")
    assert client.ask("GET", f"{OBJECT}?alt=media&fields=b").body == b'{"a": 1}'
    assert reason(client.ask("GET", "/storage/v1/b/bkt/o/other?fields=name")) == "notFound"


@pytest.mark.parametrize(
    "target", ["/", "/storage", "/storage/v1/b/bkt/o/", "/upload/x", "nothing"]
)
def test_unknown_paths(client, target):
    assert client.ask("GET", target).status in (404, 501)


# The write rate and tokens


def test_the_write_rate_of_an_object():
    client = Client(object_write_rate=1)
    client.put("a")
    client.put("b")
    for method, target, body in (
        ("POST", UPLOAD + "a", b"new"),
        ("PATCH", "/storage/v1/b/bkt/o/a", b"{}"),
        ("DELETE", "/storage/v1/b/bkt/o/a", b""),
    ):
        response = client.ask(method, target, body)
        assert (response.status, reason(response)) == (429, "rateLimitExceeded")
    assert client.content("a") == b"value"
    client.now += 1
    client.put("a")


def test_tokens():
    api = Api(Store(), require_token=True)
    target = "/storage/v1/b?project=p"
    refused = api.handle(Request("GET", target))
    assert (refused.status, reason(refused)) == (401, "required")
    assert "WWW-Authenticate" in refused.headers
    token = json.loads(api.handle(Request("POST", "/token")).body)
    assert token["token_type"] == "Bearer"
    headers = CIMultiDict({"Authorization": f"Bearer {token['access_token']}"})
    assert api.handle(Request("GET", target, headers)).status == 200
    assert (
        api.handle(Request("GET", target, CIMultiDict({"Authorization": "Basic x"}))).status == 401
    )


def test_operations_are_counted(client):
    client.put()
    client.content()
    client.content()
    client.ask("GET", "/nowhere/x/y")
    assert client.api.operations == {"objects.insert": 1, "objects.get": 2, "xml.get": 1}
