"""The replies of several nodes to the parts of one retrieval, as one reply."""

from collections.abc import Sequence
from typing import Final

__all__ = ["merge"]

_END: Final = b"END\r\n"


def merge(keys: Sequence[tuple[bytes, int]], replies: Sequence[bytes]) -> bytes:
    r"""Return the items of several replies in the order in which they were asked for.

    Args:
        keys: each key with the index of the reply that has it, in the order of the request. The
            items of a reply come in the same order, and may lack some.
        replies: ``VALUE …\r\n<value>\r\n`` for each item, then ``END\r\n``. One that begins with
            something else counts as one without items.
    """
    positions = [0] * len(replies)
    parts: list[bytes] = []
    for key, index in keys:
        reply, position = replies[index], positions[index]
        if reply.startswith(b"VALUE %b " % key, position):
            line_end = reply.index(b"\r\n", position)
            size = int(reply[position:line_end].split(b" ", 4)[3])
            end = line_end + 2 + size + 2
            parts.append(reply[position:end])
            positions[index] = end
    parts.append(_END)
    return b"".join(parts)
