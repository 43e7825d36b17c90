"""What the store does in one step: changes that depend on the current state.

``SET … IFEQ``, which newer servers have, compares the whole value, which would have to be sent
along. The scripts compare a part of it and copy nothing.
"""

import hashlib
from typing import Final, NamedTuple

__all__ = ["OVERWRITE", "REPLACE", "Script"]


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

The arguments are the two offsets, the expected part (nothing, if there is to be no string), the new
content (none to delete it), and the milliseconds after which it expires (none for never). Returns 1
if it did, else 0.
"""

OVERWRITE: Final = Script.of("""\
local content = ARGV[1]
local found = redis.pcall('GETRANGE', KEYS[1], 0, 127)
if type(found) == 'string' then
  local epoch = string.match(found, '^m1 %S+ %S+ %S+ %S+ (%d+) ')
  if epoch and tonumber(epoch) > tonumber(ARGV[2]) then
    content = string.gsub(content, '^(m1 %S+ %S+ %S+ %S+ )%d+', '%1' .. epoch, 1)
  end
end
if ARGV[3] then
  redis.call('SET', KEYS[1], content, 'PX', ARGV[3])
else
  redis.call('SET', KEYS[1], content)
end
return 1
""")
"""Stores the content of a record, in the epoch of the record that it replaces if that is later.

A set that began before a flush may reach the store after it, and after another client's set of the
epoch that the flush began. With its own epoch it would count as flushed, and that other record,
whose set was acknowledged, would be lost with it.

The arguments are the content, the epoch in it, and the milliseconds after which it expires (none
for never). What is not a record is replaced as well. Always returns 1.
"""
