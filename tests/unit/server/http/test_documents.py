"""Bodies that are built once for many requests."""

import gzip

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from aiohttp.test_utils import make_mocked_request

from memlite.server.http.documents import Document, Recent
from memlite.server.http.site import document_reply


def test_a_document_is_compressed_once() -> None:
    document = Document(b"text" * 100)
    assert gzip.decompress(document.compressed) == document.plain
    assert document.compressed is document.compressed


def test_a_document_is_rebuilt_after_a_fifth_of_a_second() -> None:
    made: list[bytes] = []
    now = 100.0

    def make() -> bytes:
        made.append(b"%d" % len(made))
        return made[-1]

    recent = Recent(make, lambda: now)
    first = recent.document()
    now += 0.125
    assert recent.document() is first
    now += 0.125
    assert recent.document().plain == b"1"
    assert len(made) == 2


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip; q=1.0", True),
        ("gzip;q=0", False),
        ("br, gzip; q=0.000", False),
        ("deflate", False),
        ("", False),
    ],
)
def test_compression_depends_on_accept_encoding(accepted: str, compressed: bool) -> None:
    request = make_mocked_request("GET", "/", headers={"Accept-Encoding": accepted})
    document = Document(b"text" * 100)
    reply = document_reply(request, document, "text/plain")
    assert reply.body == (document.compressed if compressed else document.plain)
    assert ("Content-Encoding" in reply.headers) == compressed
