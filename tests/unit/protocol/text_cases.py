"""Input for the text parser, and the calls it results in."""

from tests.unit.protocol.recorder import (
    BAD_DELTA,
    BAD_EXPTIME,
    BAD_FORMAT,
    ERROR,
    EVERY_BYTE,
    K250,
    K251,
    admin,
    bad_chunk,
    reject,
)

# Each case: the input, and the calls it results in.

RETRIEVALS = [
    (b"get a\r\n", [("get", [b"a"])]),
    (b"get a\n", [("get", [b"a"])]),
    (b"get a b c\r\n", [("get", [b"a", b"b", b"c"])]),
    (b"get a a\r\n", [("get", [b"a", b"a"])]),
    (b"get   a    b  \r\n", [("get", [b"a", b"b"])]),
    (b"get a\tb\r\n", [("get", [b"a\tb"])]),
    (b"get \xff\x00\r\n", [("get", [b"\xff\x00"])]),
    (b"get a\r\r\n", [("get", [b"a\r"])]),
    (b"get noreply\r\n", [("get", [b"noreply"])]),
    (b"get / HTTP/1.1\r\n", [("get", [b"/", b"HTTP/1.1"])]),
    (b"get " + K250 + b"\r\n", [("get", [K250])]),
    (b"get " + b" ".join([K250] * 3) + b"\r\n", [("get", [K250] * 3)]),
    (b"get " + K251 + b"\r\n", [reject(BAD_FORMAT)]),
    (b"get a " + K251 + b" b\r\n", [reject(BAD_FORMAT)]),
    (b"get\r\n", [reject(BAD_FORMAT)]),
    (b"get\n", [reject(BAD_FORMAT)]),
    (b"get    \r\n", [reject(BAD_FORMAT)]),
    (b"gets a\r\n", [("gets", [b"a"])]),
    (b"gets  a  b\n", [("gets", [b"a", b"b"])]),
    (b"gets\r\n", [reject(BAD_FORMAT)]),
    (b"gets " + K251 + b"\r\n", [reject(BAD_FORMAT)]),
    (b"gat 0 a\r\n", [("gat", 0, [b"a"])]),
    (b"gat -1 a b\r\n", [("gat", -1, [b"a", b"b"])]),
    (b"gat 2592001 a\r\n", [("gat", 2592001, [b"a"])]),
    (b"gat  10  a \r\n", [("gat", 10, [b"a"])]),
    (b"gat\r\n", [reject(BAD_FORMAT)]),
    (b"gat 0\r\n", [reject(BAD_FORMAT)]),
    (b"gat x a\r\n", [reject(BAD_EXPTIME)]),
    (b"gat 1_0 a\r\n", [reject(BAD_EXPTIME)]),
    (b"gat +1 a\r\n", [reject(BAD_EXPTIME)]),
    (b"gat 0 " + K251 + b"\r\n", [reject(BAD_FORMAT)]),
    (b"gats 100 a b\r\n", [("gats", 100, [b"a", b"b"])]),
    (b"gats 0\r\n", [reject(BAD_FORMAT)]),
    (b"gats 0x1 a\r\n", [reject(BAD_EXPTIME)]),
]

STORES = [
    (b"set a 5 10 3\r\nxyz\r\n", [("set", b"a", 5, 10, b"xyz", False)]),
    (b"set a 5 10 3\nxyz\r\n", [("set", b"a", 5, 10, b"xyz", False)]),
    (b"set a 5 10 3 noreply\r\nxyz\r\n", [("set", b"a", 5, 10, b"xyz", True)]),
    (b"set  a   5 10   3    noreply  \r\nxyz\r\n", [("set", b"a", 5, 10, b"xyz", True)]),
    (b"set a 0 0 0\r\n\r\n", [("set", b"a", 0, 0, b"", False)]),
    (b"set a 0 0 2\r\n\r\n\r\n", [("set", b"a", 0, 0, b"\r\n", False)]),
    (b"set a 0 0 7\r\nget b\r\n\r\n", [("set", b"a", 0, 0, b"get b\r\n", False)]),
    (b"set a 0 0 256\r\n" + EVERY_BYTE + b"\r\n", [("set", b"a", 0, 0, EVERY_BYTE, False)]),
    (b"set a 4294967295 0 1\r\nx\r\n", [("set", b"a", 2**32 - 1, 0, b"x", False)]),
    (b"set a 007 0 01\r\nx\r\n", [("set", b"a", 7, 0, b"x", False)]),
    (b"set a 0 -1 1\r\nx\r\n", [("set", b"a", 0, -1, b"x", False)]),
    (b"set a 0 2147483647 1\r\nx\r\n", [("set", b"a", 0, 2**31 - 1, b"x", False)]),
    (b"set a +5 +10 1\r\nx\r\n", [("set", b"a", 5, 10, b"x", False)]),  # strtoul() and strtol()
    (b"set a -0 -0 -0\r\n\r\n", [("set", b"a", 0, 0, b"", False)]),
    (b"set a 0 0 -\r\n\r\n", [("set", b"a", 0, 0, b"", False)]),
    (b"set a 0 0 1 other\r\nx\r\n", [("set", b"a", 0, 0, b"x", False)]),
    (b"set a 0 0 1 noreply other\r\nx\r\n", [("set", b"a", 0, 0, b"x", False)]),
    (b"set a 0 0 1 other noreply\r\nx\r\n", [("set", b"a", 0, 0, b"x", True)]),
    (b"set noreply 0 0 1\r\nx\r\n", [("set", b"noreply", 0, 0, b"x", False)]),
    (b"set a 0 0 1 b\nc\r\nx\r\n", [("set", b"a", 0, 0, b"c", False), reject(BAD_FORMAT)]),
    (
        b"set a\nb 0 0 1\r\nx\r\n",
        [reject(BAD_FORMAT), admin(b"b", b"0", b"0", b"1"), reject(BAD_FORMAT)],
    ),
    (b"set a 0 0\n1\r\nx\r\n", [reject(BAD_FORMAT)] * 3),
    (b"set  0 0 1\r\nget b\r\n", [reject(BAD_FORMAT), ("get", [b"b"])]),
    (b"set a 0  1\r\nget b\r\n", [reject(BAD_FORMAT), ("get", [b"b"])]),
    (b"set " + K250 + b" 0 0 1\r\nx\r\n", [("set", K250, 0, 0, b"x", False)]),
    (b"add a 1 2 3\r\nxyz\r\n", [("add", b"a", 1, 2, b"xyz", False)]),
    (b"add a 1 2 3 noreply\r\nxyz\r\n", [("add", b"a", 1, 2, b"xyz", True)]),
    (b"replace a 1 2 3\r\nxyz\r\n", [("replace", b"a", 1, 2, b"xyz", False)]),
    (b"replace a 1 2 3 noreply\r\nxyz\r\n", [("replace", b"a", 1, 2, b"xyz", True)]),
    (b"append a 1 2 3\r\nxyz\r\n", [("append", b"a", 1, 2, b"xyz", False)]),
    (b"append a 1 2 3 noreply\r\nxyz\r\n", [("append", b"a", 1, 2, b"xyz", True)]),
    (b"prepend a 1 2 3\r\nxyz\r\n", [("prepend", b"a", 1, 2, b"xyz", False)]),
    (b"prepend a 1 2 3 noreply\r\nxyz\r\n", [("prepend", b"a", 1, 2, b"xyz", True)]),
    (b"cas a 1 2 3 4\r\nxyz\r\n", [("cas", b"a", 1, 2, b"xyz", 4, False)]),
    (b"cas a 1 2 3 4 noreply\r\nxyz\r\n", [("cas", b"a", 1, 2, b"xyz", 4, True)]),
    (b"cas a 0 0 1 %d\r\nx\r\n" % (2**64 - 1), [("cas", b"a", 0, 0, b"x", 2**64 - 1, False)]),
]

# The declared length is known, so the value is skipped, and no part of it is read as a command.
BAD_STORES_SWALLOWED = [
    (b"set " + K251 + b" 0 0 5\r\nget b\r\n", [reject(BAD_FORMAT)]),
    (b"set " + K251 + b" 0 0 5 noreply\r\nget b\r\n", [reject(BAD_FORMAT, True)]),
    (b"set " + K251 + b" 0 0 5000\r\n" + b"x" * 5000 + b"\r\n", [reject(BAD_FORMAT)]),
    *(
        (b"%b a %b 0 5%b\r\nget b\r\n" % (name, flags, unique), [reject(BAD_FORMAT)])
        for name, unique in [(b"set", b""), (b"append", b""), (b"cas", b" 1")]
        for flags in (b"x", b"1_0", b"-1", b"0x1", b"4294967296", b"1" * 5000, b"1.0", b"++1", b"+")
        if len(flags) < 1000 or name == b"set"
    ),
    *(
        (b"add a 0 %b 5\r\nget b\r\n" % exptime, [reject(BAD_FORMAT)])
        for exptime in (b"x", b"1_0", b"--1", b"0x1", b"-", b"1.5", b"1" * 30, b"1-", b"+", b"+-1")
    ),
    (b"replace a x 0 5 noreply\r\nget b\r\n", [reject(BAD_FORMAT, True)]),
    *(
        (b"cas a 0 0 5 %b\r\nget b\r\n" % unique, [reject(BAD_FORMAT)])
        for unique in (b"x", b"-1", b"+1", b"1_0", b"0x1", b"18446744073709551616")
    ),
    (b"cas a 0 0 5\r\nget b\r\n", [reject(BAD_FORMAT)]),
    (b"cas a 0 0 5 noreply\r\nget b\r\n", [reject(BAD_FORMAT, True)]),
]

# Without a length, the intended value is parsed as a command.
BAD_STORES = [
    *(
        (b"set a 0 0 %b\r\nget b\r\n" % size, [reject(BAD_FORMAT), ("get", [b"b"])])
        for size in (
            b"x", b"-1", b"+1", b"1_0", b"0x1", b"1.0", b"", b"2147483646", b"4294967296",
            b"1" * 5000,
        )
    ),
    *(
        (b"%b\r\nget b\r\n" % line, [reject(BAD_FORMAT), ("get", [b"b"])])
        for line in (
            b"set", b"set a", b"set a 0", b"set a 0 0", b"set a 0 0 noreply",
            b"add a 0 0", b"replace a", b"append a 0", b"prepend", b"cas a 0 0",
            # noreply is looked for only once the line has all its words
            b"set a 0 0 x noreply",
        )
    ),
]  # fmt: skip

# The value is longer or shorter than declared: parsing resumes after the declared length.
BAD_CHUNKS = [
    (b"set a 0 0 3\r\nxyzget b\r\n", [bad_chunk(), admin(b"t", b"b")]),
    (b"set a 0 0 3\r\nxyz\n\nget b\r\n", [bad_chunk(), ("get", [b"b"])]),
    (b"set a 0 0 3 noreply\r\nxyz\n\nget b\r\n", [bad_chunk(True), ("get", [b"b"])]),
    (b"cas a 0 0 3 1\r\nxyz..get b\r\n", [bad_chunk(), ("get", [b"b"])]),
    (b"set a 0 0 1\r\nxyz\r\n", [bad_chunk(), reject(BAD_FORMAT)]),
    (b"set a 0 0 1\r\nxy\r\n", [bad_chunk(), reject(BAD_FORMAT)]),
    (b"set a 0 0 1\r\nxyzvw\r\n", [bad_chunk(), admin(b"vw")]),
    (b"set a 0 0 0\r\nvalue\r\n", [bad_chunk(), admin(b"lue")]),
    (b"set a 0 0 5\r\nx\r\nget key\r\n", [bad_chunk(), admin(b"key")]),
]

TOO_LARGE = [
    *(
        (
            b"%b a 0 0 2000%b\r\n" % (name, b" 1" if name == b"cas" else b"")
            + b"get b\r\n" * 285 + b"12345" + b"\r\n",
            [("too_large", name, b"a", False)],
        )
        for name in (b"set", b"add", b"replace", b"append", b"prepend", b"cas")
    ),
    (b"set a 0 0 2000 noreply\r\n" + b"\n" * 2002, [("too_large", b"set", b"a", True)]),
    # Skipped by length: a wrong line ending after a refused value goes unnoticed.
    (b"set a 0 0 2000\r\n" + b"x" * 2002 + b"get b\r\n",
     [("too_large", b"set", b"a", False), ("get", [b"b"])]),
]  # fmt: skip

CHANGES = [
    (b"delete a\r\n", [("delete", b"a", False)]),
    (b"delete a noreply\r\n", [("delete", b"a", True)]),
    (b"delete a 0\r\n", [("delete", b"a", False)]),
    (b"delete a 0 noreply\r\n", [("delete", b"a", True)]),
    (b"delete  a  \n", [("delete", b"a", False)]),
    (b"delete noreply\r\n", [("delete", b"noreply", True)]),  # as memcached reads it
    (b"delete\r\n", [reject(BAD_FORMAT)]),
    (b"delete " + K250 + b"\r\n", [("delete", K250, False)]),
    (b"delete " + K251 + b"\r\n", [reject(BAD_FORMAT)]),
    (b"delete " + K251 + b" noreply\r\n", [reject(BAD_FORMAT, True)]),
    (b"incr a 1\r\n", [("incr", b"a", 1, False)]),
    (b"incr a 1 noreply\r\n", [("incr", b"a", 1, True)]),
    (b"incr  a   4097  \r\n", [("incr", b"a", 4097, False)]),
    (b"incr a 0\r\n", [("incr", b"a", 0, False)]),
    (b"incr a %d\r\n" % (2**64 - 1), [("incr", b"a", 2**64 - 1, False)]),
    (b"incr a %d\r\n" % 2**64, [reject(BAD_DELTA)]),
    (b"incr\r\n", [reject(BAD_FORMAT)]),
    (b"incr a\r\n", [reject(BAD_FORMAT)]),
    (b"incr a noreply\r\n", [reject(BAD_DELTA, True)]),
    *(
        (b"incr a %b\r\n" % delta, [reject(BAD_DELTA)])
        for delta in (b"x", b"-1", b"+1", b"1_0", b"0x1", b"1.0", b"\xb2", b"1" * 5000)
    ),
    (b"incr a -1 noreply\r\n", [reject(BAD_DELTA, True)]),
    (b"incr " + K251 + b" x\r\n", [reject(BAD_FORMAT)]),
    (b"decr a 1\r\n", [("decr", b"a", 1, False)]),
    (b"decr a 1 noreply\r\n", [("decr", b"a", 1, True)]),
    (b"decr a\r\n", [reject(BAD_FORMAT)]),
    (b"decr a x\r\n", [reject(BAD_DELTA)]),
    (b"touch a 10\r\n", [("touch", b"a", 10, False)]),
    (b"touch a 10 noreply\r\n", [("touch", b"a", 10, True)]),
    (b"touch a -5\r\n", [("touch", b"a", -5, False)]),
    (b"touch a\r\n", [reject(BAD_FORMAT)]),
    (b"touch a noreply\r\n", [reject(BAD_EXPTIME, True)]),
    *(
        (b"touch a %b\r\n" % exptime, [reject(BAD_EXPTIME)])
        for exptime in (b"x", b"+1", b"1_0", b"0x1", b"1" * 30)
    ),
    (b"touch " + K251 + b" 0 noreply\r\n", [reject(BAD_FORMAT, True)]),
]

OTHERS = [
    (b"version\r\n", [admin(b"version")]),
    (b"version noreply\r\n", [admin(b"version", b"noreply")]),
    (b"stats\r\n", [admin(b"stats")]),
    (b"stats  items \r\n", [admin(b"stats", b"items")]),
    (b"stats noreply\r\n", [admin(b"stats", b"noreply")]),
    (b"flush_all\r\n", [admin(b"flush_all")]),
    (b"flush_all 10 noreply\r\n", [admin(b"flush_all", b"10", b"noreply", noreply=True)]),
    (b"verbosity 1\n", [admin(b"verbosity", b"1")]),
    (b"nonsense\r\n", [admin(b"nonsense")]),
    (b"nonsense noreply\r\n", [admin(b"nonsense", b"noreply", noreply=True)]),
    (b"noreply\r\n", [admin(b"noreply", noreply=True)]),
    (b"GET a\r\n", [admin(b"GET", b"a")]),
    (b"get\ta\r\n", [admin(b"get\ta")]),
    (b"HTTP/1.1\r\n", [admin(b"HTTP/1.1")]),
    (b"POST / HTTP/1.0 more\r\n", [admin(b"POST", b"/", b"HTTP/1.0", b"more")]),
    (b"x" * 2048 + b"\n", [admin(b"x" * 2048)]),
    # After leading spaces memcached recognises only commands that are not about keys.
    (b"  flush_all\r\n", [admin(b"flush_all")]),
    (b" get a\r\n", [reject(ERROR)]),
    (b"  version\r\n", [reject(ERROR)]),
    (b" quit\r\n", [reject(ERROR)]),
    (b" set a 0 0 5\r\nget b\r\n", [reject(ERROR), ("get", [b"b"])]),
    # Lines too short for any command, and blank ones.
    (b"\r\n", [reject(BAD_FORMAT)]),
    (b"\n", [reject(BAD_FORMAT)]),
    (b"a\r\n", [reject(BAD_FORMAT)]),
    (b"ab\n", [reject(BAD_FORMAT)]),
    (b" \r\n", [reject(BAD_FORMAT)]),
    (b"\n\r\n\n", [reject(BAD_FORMAT)] * 3),
    (b"ab\r\n", [admin(b"ab")]),
    (b"abc\n", [admin(b"abc")]),
    (b"    \r\n", [reject(ERROR)]),
]

CASES = [
    *RETRIEVALS, *STORES, *BAD_STORES_SWALLOWED, *BAD_STORES, *BAD_CHUNKS, *TOO_LARGE, *CHANGES,
    *OTHERS,
]  # fmt: skip

AS_IN_MEMCACHED = [
    # memcached reads the exptime of gat before it looks at the keys.
    (b"gat x " + K251 + b"\r\n", [reject(BAD_EXPTIME)]),
    # Noreply also suppresses the ERROR for a command after leading spaces.
    (b" get a noreply\r\n", [reject(ERROR, True)]),
    (b" delete a noreply\r\n", [reject(ERROR, True)]),
]
