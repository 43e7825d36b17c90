"""Build single text-protocol requests, off the hot path."""

__all__ = ["command_request", "storage_request"]


def command_request(words: list[bytes], *, noreply: bool = False) -> bytes:
    """Return a request that carries no value.

    Args:
        words: the command, its key and its remaining arguments.
        noreply: whether the server suppresses the reply.
    """
    if noreply:
        words = [*words, b"noreply"]
    return b" ".join(words) + b"\r\n"


def storage_request(
    command: bytes,
    key: bytes,
    value: bytes,
    *,
    exptime: int = 0,
    unique: int | None = None,
    noreply: bool = False,
) -> bytes:
    """Return a request that stores a value.

    Args:
        command: a storage command, such as ``set``.
        key: the item's key.
        value: the value to store.
        exptime: expiry in seconds; 0 for none.
        unique: for ``cas``, the unique value that ``gets`` returned.
        noreply: whether the server suppresses the reply.
    """
    words = [command, key, b"0", b"%d" % exptime, b"%d" % len(value)]
    if unique is not None:
        words.append(b"%d" % unique)
    return command_request(words, noreply=noreply) + value + b"\r\n"
