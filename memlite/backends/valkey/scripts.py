"""Scripts for atomic changes: a change on condition that the current state is a given one.

``SET … IFEQ`` of newer servers compares the whole value, which would have to be sent along. The
script compares a part of it and copies nothing.
"""

import hashlib
from typing import Final, NamedTuple

__all__ = ["REPLACE", "Script"]


class Script(NamedTuple):
    """A script in Lua.

    Attributes:
        text: the script.
        sha: its name for EVALSHA.
    """

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> "Script":
        """Return the script with this text."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


REPLACE: Final = Script.of("""\
if redis.call('GETRANGE', KEYS[1], ARGV[1], ARGV[2]) ~= ARGV[3] then
  return 0
end
if not ARGV[4] then
  redis.call('DEL', KEYS[1])
elseif ARGV[5] then
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[5])
else
  redis.call('SET', KEYS[1], ARGV[4])
end
return 1
""")
"""Replaces a string if a part of it, from one offset to another, is as expected.

The arguments are the two offsets, the expected part (empty if the string must not exist), the new
content (omitted to delete it), and the milliseconds until it expires (omitted for never). Returns 1
if it was replaced, else 0.
"""
