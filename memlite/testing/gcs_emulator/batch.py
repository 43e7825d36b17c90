"""Batch requests: up to a hundred requests as the parts of one.

Reference: https://cloud.google.com/storage/docs/batch.
"""

import secrets
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from multidict import CIMultiDict

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.messages import Request, Response
from memlite.testing.gcs_emulator.multipart import parse_multipart, parse_part, write_multipart

__all__ = ["answer_batch"]

_MAX_REQUESTS = 100


def answer_batch(batch: Request, handle: Callable[[Request], Response]) -> Response:
    """Execute the requests of a batch one after the other.

    Args:
        batch: the request that contains them.
        handle: executes a single request.

    Returns:
        A response that contains the responses to the requests, in order.

    Raises:
        GcsError: 400 if the batch is malformed; none of its requests has been executed.
    """
    parts = parse_multipart(batch.headers.get("Content-Type", ""), batch.body)
    if len(parts) > _MAX_REQUESTS:
        raise GcsError.invalid(f"A batch has at most {_MAX_REQUESTS} requests.")
    requests = [_parse_request(batch, text) for _, text in parts]
    if any(
        request.target.startswith(("/batch/", "/upload/", "/download/")) for request in requests
    ):
        raise GcsError.invalid("Uploads, downloads and batches cannot be part of a batch.")
    replies = []
    for (headers, _), request in zip(parts, requests, strict=True):
        shown: CIMultiDict[str] = CIMultiDict({"Content-Type": "application/http"})
        if "Content-ID" in headers:
            shown["Content-ID"] = f"<response-{headers['Content-ID'].strip('<>')}>"
        replies.append((shown, _write_response(handle(request))))
    boundary = f"batch_{secrets.token_hex(12)}"
    body = write_multipart(replies, boundary)
    return Response(200, body, {"Content-Type": f"multipart/mixed; boundary={boundary}"})


def _parse_request(batch: Request, text: bytes) -> Request:
    line, _, rest = text.partition(b"\n")
    words = line.decode("latin-1").split()
    if len(words) not in (2, 3):
        raise GcsError.invalid("A part of the batch does not start with a request line.")
    url = urlsplit(words[1])
    headers, body = parse_part(rest)
    # These headers of the batch also apply to its parts.
    for name in ("Authorization", "Host"):
        if name in batch.headers and name not in headers:
            headers[name] = batch.headers[name]
    target = url.path + (f"?{url.query}" if url.query else "")
    return Request(words[0].upper(), target, headers, body.strip())


def _write_response(response: Response) -> bytes:
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:  # GCS also uses non-standard statuses
        phrase = ""
    headers = {**response.headers, "Content-Length": str(len(response.body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {response.status} {phrase}\r\n{lines}\r\n".encode() + response.body
