"""The requests of the backend contract, and the replies that a server must give."""

from collections.abc import Mapping, Sequence

from memlite.core.version import SERVER_VERSION

__all__ = ["COMMANDS", "Script"]

Script = Sequence[tuple[bytes, bytes]]

COMMANDS: Mapping[str, Script] = {
    "set and get": [
        (b"get a\r\n", b"END\r\n"),
        (b"set a 5 0 3\r\nabc\r\n", b"STORED\r\n"),
        (b"get a\r\n", b"VALUE a 5 3\r\nabc\r\nEND\r\n"),
        (b"set a 0 0 0\r\n\r\n", b"STORED\r\n"),
        (b"get a b a\r\n", b"VALUE a 0 0\r\n\r\nVALUE a 0 0\r\n\r\nEND\r\n"),
    ],
    "add and replace": [
        (b"replace r 0 0 1\r\n1\r\n", b"NOT_STORED\r\n"),
        (b"add r 1 0 1\r\n2\r\n", b"STORED\r\n"),
        (b"add r 0 0 1\r\n3\r\n", b"NOT_STORED\r\n"),
        (b"replace r 2 0 1\r\n4\r\n", b"STORED\r\n"),
        (b"get r\r\n", b"VALUE r 2 1\r\n4\r\nEND\r\n"),
    ],
    "append and prepend": [
        (b"append p 0 0 1\r\n1\r\n", b"NOT_STORED\r\n"),
        (b"prepend p 0 0 1\r\n1\r\n", b"NOT_STORED\r\n"),
        (b"set p 9 0 2\r\n\r\n\r\n", b"STORED\r\n"),
        (b"append p 1 0 3\r\nend\r\n", b"STORED\r\n"),
        (b"prepend p 1 0 2\r\n\0\xff\r\n", b"STORED\r\n"),
        (b"get p\r\n", b"VALUE p 9 7\r\n\0\xff\r\nend\r\nEND\r\n"),
    ],
    "incr and decr": [
        (b"incr n 1\r\n", b"NOT_FOUND\r\n"),
        (b"set n 3 0 20\r\n18446744073709551614\r\n", b"STORED\r\n"),
        (b"incr n 1\r\n", b"18446744073709551615\r\n"),
        (b"incr n 2\r\n", b"1\r\n"),
        (b"get n\r\n", b"VALUE n 3 20\r\n1" + b" " * 19 + b"\r\nEND\r\n"),
        (b"decr n 5\r\n", b"0\r\n"),
        (b"set n 0 0 2\r\n10\r\n", b"STORED\r\n"),
        (b"decr n 1\r\n", b"9\r\n"),
        (b"get n\r\n", b"VALUE n 0 2\r\n9 \r\nEND\r\n"),
        (b"set n 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (
            b"incr n 1\r\n",
            b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
    ],
    "delete and touch": [
        (b"delete d\r\n", b"NOT_FOUND\r\n"),
        (b"touch d 0\r\n", b"NOT_FOUND\r\n"),
        (b"set d 4 100 1\r\n1\r\n", b"STORED\r\n"),
        (b"touch d 0\r\n", b"TOUCHED\r\n"),
        (b"gat 100 d e d\r\n", b"VALUE d 4 1\r\n1\r\nVALUE d 4 1\r\n1\r\nEND\r\n"),
        (b"delete d\r\n", b"DELETED\r\n"),
        (b"delete d\r\n", b"NOT_FOUND\r\n"),
        (b"get d\r\n", b"END\r\n"),
    ],
    "noreply": [
        (b"set q 0 0 1 noreply\r\n1\r\nincr q 5 noreply\r\nget q\r\n",
         b"VALUE q 0 1\r\n6\r\nEND\r\n"),
        (b"append q 0 0 1 noreply\r\n7\r\nadd q 0 0 1 noreply\r\n1\r\nget q\r\n",
         b"VALUE q 0 2\r\n67\r\nEND\r\n"),
        (b"touch q 0 noreply\r\ndelete q noreply\r\ndelete q noreply\r\nget q\r\n", b"END\r\n"),
    ],
    "one key, many commands": [
        (b"".join(b"set m 0 0 2\r\n%02d\r\nget m\r\n" % number for number in range(10, 40)),
         b"".join(
             b"STORED\r\nVALUE m 0 2\r\n%02d\r\nEND\r\n" % number for number in range(10, 40)
         )),
        (b"set m 0 0 1\r\n0\r\n" + b"incr m 1\r\n" * 30 + b"delete m\r\nget m\r\n",
         b"STORED\r\n" + b"".join(b"%d\r\n" % number for number in range(1, 31))
         + b"DELETED\r\nEND\r\n"),
    ],
    "others among them": [
        (b"set o 0 0 1\r\n1\r\nversion\r\nget o\r\nnonsense\r\nget o\r\nverbosity 0\r\n",
         b"STORED\r\nVERSION " + SERVER_VERSION.encode() + b"\r\nVALUE o 0 1\r\n1\r\nEND\r\n"
         b"ERROR\r\nVALUE o 0 1\r\n1\r\nEND\r\nOK\r\n"),
        (b"flush_all\r\nget o\r\nset o 0 0 1\r\n2\r\nget o\r\n",
         b"OK\r\nEND\r\nSTORED\r\nVALUE o 0 1\r\n2\r\nEND\r\n"),
    ],
    "meta set and get": [
        (b"mg a v\r\n", b"EN\r\n"),
        (b"ms a 2 F5 T100\r\nhi\r\n", b"HD\r\n"),
        (b"mg a v f s t k O1\r\n", b"VA 2 f5 s2 t100 ka O1\r\nhi\r\n"),
        (b"ms a 1 MA s\r\n!\r\n", b"HD s3\r\n"),
        (b"ms a 1 ME\r\nx\r\n", b"NS\r\n"),
        (b"ms none 1 MR\r\nx\r\n", b"NS\r\n"),
        (b"ms none 1 MP N60\r\nx\r\n", b"HD\r\n"),
        (b"mg none v t\r\n", b"VA 1 t60\r\nx\r\n"),
        (b"mg a T60 t v\r\n", b"VA 3 t60\r\nhi!\r\n"),
        (b"md a q\r\nmd a q\r\nmg a q v\r\nmn\r\n", b"NF\r\nMN\r\n"),
        (b"ma n N60 J7 v t\r\n", b"VA 1 t60\r\n7\r\n"),
        (b"ma n D5 v\r\n", b"VA 2\r\n12\r\n"),
        (b"ma n MD D20 v t\r\n", b"VA 1 t60\r\n0\r\n"),
    ],
    "stale and won": [
        (b"ms a 2 T100\r\nhi\r\n", b"HD\r\n"),
        (b"md a I T30\r\n", b"HD\r\n"),
        (b"mg a v t\r\n", b"VA 2 t30 X W\r\nhi\r\n"),
        (b"mg a v t\r\n", b"VA 2 t30 Z X\r\nhi\r\n"),
        (b"get a\r\n", b"VALUE a 0 2\r\nhi\r\nEND\r\n"),
        (b"touch a 50\r\n", b"TOUCHED\r\n"),
        (b"mg a t\r\n", b"HD t50 Z X\r\n"),
        (b"ms a 3 T60\r\nnew\r\n", b"HD\r\n"),
        (b"mg a v t\r\n", b"VA 3 t60\r\nnew\r\n"),
        (b"mg a R70 t\r\n", b"HD t60 W\r\n"),
        (b"mg a R70 t\r\n", b"HD t60 Z\r\n"),
        (b"mg b N30 v\r\n", b"VA 0 W\r\n\r\n"),
        (b"mg b N30 v\r\n", b"VA 0 Z\r\n\r\n"),
        (b"md b x T0 I\r\n", b"HD\r\n"),
        (b"mg b s\r\n", b"HD s0 X W\r\n"),
    ],
    "explicit uniques": [
        (b"ms a 1 E5000\r\nx\r\n", b"HD\r\n"),
        (b"mg a c\r\n", b"HD c5000\r\n"),
        (b"gets a\r\n", b"VALUE a 0 1 5000\r\nx\r\nEND\r\n"),
        (b"ms a 1 C4999 c\r\ny\r\n", b"EX c0\r\n"),
        (b"ms a 1 C5000 E6000\r\ny\r\n", b"HD\r\n"),
        (b"cas a 0 0 1 5000\r\nz\r\n", b"EXISTS\r\n"),
        # A slow client stores a value older than the current one.
        (b"ms a 3 C5500 I E6001\r\nold\r\n", b"HD\r\n"),
        (b"mg a v c\r\n", b"VA 3 c6001 X W\r\nold\r\n"),
        (b"md a C1\r\n", b"EX\r\n"),
        (b"md a C6001\r\n", b"HD\r\n"),
        (b"ma n N0 E18446744073709551615 c\r\n", b"HD c18446744073709551615\r\n"),
    ],
    "keys in base64": [
        (b"ms YSBi 1 b\r\nx\r\n", b"HD\r\n"),  # "a b"
        (b"get a b\r\n", b"END\r\n"),
        (b"mg YSBi b k v\r\n", b"VA 1 kYSBi b\r\nx\r\n"),
        (b"md YSBi b\r\n", b"HD\r\n"),
    ],
}  # fmt: skip
"""Requests and the required replies, on an empty store."""
