"""Multipart and resumable uploads."""

import base64
import hashlib

import google_crc32c
import pytest

from tests.unit.testing.gcs_emulator.test_api import OBJECT, Client, reason

CHUNK = 256 * 1024
MULTIPART = "/upload/storage/v1/b/bkt/o?uploadType=multipart"
RESUMABLE = "/upload/storage/v1/b/bkt/o?uploadType=resumable"


@pytest.fixture
def client():
    return Client()


def related(metadata, content, end="\r\n", content_type="text/plain"):
    lines = [
        "--b1", "Content-Type: application/json; charset=UTF-8", "", metadata,
        "--b1", f"Content-Type: {content_type}", "", "",
    ]  # fmt: skip
    return end.join(lines).encode() + content + f"{end}--b1--{end}".encode()


# Multipart


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\r\n", b"a\r\n--b2\r\nb", b"--b", b"\n\r\n", bytes(range(256))]
)
def test_multipart(client, content, end):
    if end == "\n" and content.endswith(b"\r"):
        pytest.skip("ambiguous: the CR could be part of the line ending")
    body = related('{"name": "key", "metadata": {"a": "b"}}', content, end)
    made = client.json("POST", MULTIPART, body, content_type='multipart/related; boundary="b1"')
    assert made["metadata"] == {"a": "b"}
    assert made["contentType"] == "text/plain"
    assert client.content() == content


def test_the_name_and_type_of_a_multipart_upload(client):
    body = related('{"name": "ignored", "contentType": "a/b"}', b"")
    kind = "multipart/related; boundary=b1"
    made = client.json("POST", MULTIPART + "&name=key", body, content_type=kind)
    assert (made["name"], made["contentType"]) == ("key", "a/b")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (related("{}", b""), "multipart/related; boundary=b1"),
        (related('{"name": "key"}', b""), "multipart/related; boundary=other"),
        (related('{"name": "key"}', b""), "multipart/related"),
        (related('{"name": "key"}', b""), "text/plain"),
        (related("{", b""), "multipart/related; boundary=b1"),
        (related('{"name": "key"}', b"x")[:-8], "multipart/related; boundary=b1"),
        (b"--b1\r\n\r\n{}\r\n--b1--", "multipart/related; boundary=b1"),
        (b"--b1\r\nno header\r\n--b1--", "multipart/related; boundary=b1"),
        (b"--b1", "multipart/related; boundary=b1"),
        (b"", "multipart/related; boundary=b1"),
    ],
)
def test_malformed_multipart_bodies(client, body, content_type):
    assert client.ask("POST", MULTIPART, body, content_type=content_type).status == 400
    assert client.store.bucket("bkt").objects == {}


# Checksums


def digests(content):
    crc32c = base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()
    return crc32c, base64.b64encode(hashlib.md5(content).digest()).decode()


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("kind", ["crc32c", "md5Hash", "header"])
def test_checksums_from_the_client_are_verified(client, kind, right):
    crc32c, md5 = digests(b"value" if right else b"other")
    headers, fields = {}, ""
    if kind == "header":
        headers["x_goog_hash"] = f"crc32c={crc32c},md5={md5}"
    else:
        fields = f', "{kind}": "{crc32c if kind == "crc32c" else md5}"'
    body = related(f'{{"name": "key"{fields}}}', b"value")
    response = client.ask(
        "POST", MULTIPART, body, content_type="multipart/related; boundary=b1", **headers
    )
    assert response.status == (200 if right else 400)
    assert bool(client.store.bucket("bkt").objects) == right


# Resumable


def start(client, parameters="&name=key", body=b"", **headers):
    response = client.ask("POST", RESUMABLE + parameters, body, **headers)
    assert response.status == 200, response.body
    return response.headers["Location"].removeprefix("http://localhost")


def test_a_resumable_upload_in_one_request_without_a_range(client):
    session = start(client, "", {"name": "key", "contentType": "a/b"})
    assert client.json("PUT", session, b"hello")["contentType"] == "a/b"
    assert client.content() == b"hello"


def test_a_resumable_upload_in_chunks(client):
    content = bytes(range(256)) * 1024 * 2 + b"end"
    session = start(client, x_upload_content_type="a/b", x_upload_content_length=str(len(content)))
    status = client.ask("PUT", session, content_range="bytes */*")
    assert (status.status, dict(status.headers)) == (308, {})
    first = client.ask("PUT", session, content[:CHUNK], content_range=f"bytes 0-{CHUNK - 1}/*")
    assert (first.status, first.headers["Range"]) == (308, f"bytes=0-{CHUNK - 1}")
    assert client.ask("GET", OBJECT).status == 404
    # The next request resends the first chunk, as if the first response had been lost.
    total = len(content)
    again = client.ask(
        "PUT", session, content[: 2 * CHUNK], content_range=f"bytes 0-{2 * CHUNK - 1}/{total}"
    )
    assert again.headers["Range"] == f"bytes=0-{2 * CHUNK - 1}"
    made = client.json(
        "PUT", session, b"end", content_range=f"bytes {2 * CHUNK}-{total - 1}/{total}"
    )
    assert made["contentType"] == "a/b"
    assert client.content() == content
    # A request after the end returns the finished object again.
    assert client.json("PUT", session, content_range=f"bytes */{total}") == made


def test_an_empty_resumable_upload(client):
    session = start(client)
    assert client.json("PUT", session, content_range="bytes */0")["size"] == "0"


@pytest.mark.parametrize(
    ("content_range", "size"),
    [
        ("bytes 0-9/*", 10),
        ("bytes 0-9/20", 10),
        ("bytes 5-9/10", 5),
        ("bytes 0-9/10", 9),
        ("bytes 0-9/5", 10),
        ("bytes 0-x/5", 10),
        ("0-9/10", 10),
    ],
)
def test_chunks_that_are_refused(client, content_range, size):
    session = start(client)
    assert client.ask("PUT", session, b"x" * size, content_range=content_range).status == 400
    assert client.json("PUT", session, b"hello")["size"] == "5"


def test_a_length_that_differs_from_the_announced_one(client):
    session = start(client, x_upload_content_length="6")
    assert client.ask("PUT", session, b"hello").status == 400
    assert client.ask("POST", RESUMABLE + "&name=a", x_upload_content_length="x").status == 400


def test_cancelling_an_upload(client):
    session = start(client)
    assert client.ask("DELETE", session).status == 499
    assert client.ask("PUT", session, b"hello").status == 404


def test_preconditions_are_checked_at_the_start_and_at_the_end(client):
    sessions = [start(client, "&name=key&ifGenerationMatch=0") for _ in range(2)]
    client.json("PUT", sessions[0], b"first")
    response = client.ask("PUT", sessions[1], b"second")
    assert (response.status, reason(response)) == (412, "conditionNotMet")
    response = client.ask("POST", RESUMABLE + "&name=key&ifGenerationMatch=0")
    assert response.status == 412
    assert client.content() == b"first"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/upload/storage/v1/b/bkt/o?name=a", 400),
        ("/upload/storage/v1/b/bkt/o?name=a&uploadType=x", 400),
        ("/upload/storage/v1/b/bkt/o?uploadType=media", 400),
        (RESUMABLE, 400),
        (RESUMABLE.replace("bkt", "other") + "&name=a", 404),
        ("/upload/storage/v1/b/other/o?uploadType=media&name=a", 404),
    ],
)
def test_uploads_that_are_refused(client, target, status):
    assert client.ask("POST", target).status == status


def test_unknown_sessions(client):
    assert client.ask("PUT", RESUMABLE, b"").status == 400
    assert client.ask("PUT", RESUMABLE + "&upload_id=x", b"").status == 404
