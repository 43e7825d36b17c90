"""Requests of the text protocol, one at a time, where speed does not matter."""

__all__ = ["plain", "storage"]


def plain(words: list[bytes], *, noreply: bool = False) -> bytes:
    """Return a request without a value.

    Args:
        words: the command, its key and what else it takes.
        noreply: whether the server is to keep silent.
    """
    if noreply:
        words = [*words, b"noreply"]
    return b" ".join(words) + b"\r\n"


def storage(
    command: bytes,
    key: bytes,
    value: bytes,
    *,
    exptime: int = 0,
    unique: int | None = None,
    noreply: bool = False,
) -> bytes:
    """Return a request with a value.

    Args:
        command: such as ``set``.
        key: which.
        value: what is stored.
        exptime: in seconds; 0 for none.
        unique: of cas, what `gets` answered.
        noreply: whether the server is to keep silent.
    """
    words = [command, key, b"0", b"%d" % exptime, b"%d" % len(value)]
    if unique is not None:
        words.append(b"%d" % unique)
    return plain(words, noreply=noreply) + value + b"\r\n"
