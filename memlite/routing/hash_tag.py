"""Hash tags: the part of a key that decides where the key lives."""

from memlite.core.errors import ConfigError

__all__ = ["HashTag"]


class HashTag:
    """Finds the part of a key that is hashed, by twemproxy's rule.

    With ``{}``, ``user:{42}:name`` and ``user:{42}:mail`` are both hashed as ``42``, and live on
    one node. A key without both characters, or with nothing in between, is hashed as a whole.

    Args:
        text: the two characters; empty for no hash tags.

    Raises:
        ConfigError: it is neither empty nor two characters.
    """

    def __init__(self, text: str) -> None:
        if text and (len(text) != 2 or not text.isascii() or not text.isprintable()):
            raise ConfigError(f"hash_tag: must be two characters such as {{}}, not {text!r}")
        self._begin, self._end = text[:1].encode(), text[1:].encode()

    def __bool__(self) -> bool:
        return bool(self._begin)

    def part(self, key: bytes) -> bytes:
        """Return the part of `key` that is hashed."""
        if self._begin:
            begin = key.find(self._begin)
            if begin >= 0:
                end = key.find(self._end, begin + 1)
                if end > begin + 1:
                    return key[begin + 1 : end]
        return key
