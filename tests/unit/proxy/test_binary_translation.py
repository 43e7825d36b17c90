"""Binary requests become requests in text, and their replies become packets."""

import pytest

from memlite.protocol import packets
from memlite.protocol.packets import BinaryRequest, Opcode, Status
from memlite.proxy import binary_replies as replies
from memlite.proxy import binary_requests as requests

DATES = (0, 100, 2**31 - 1, 2**31, 2**32 - 1)


def asked(
    opcode: int,
    key: bytes = b"k",
    *,
    numbers: tuple[int, ...] = (),
    value: bytes = b"",
    cas: int = 0,
) -> BinaryRequest:
    request = BinaryRequest(opcode, key, 7, cas)
    request.numbers, request.value = numbers, value
    return request


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        (asked(Opcode.SET, numbers=(0, 0), value=b"v"), b"ms k 1 c\r\nv\r\n"),
        (asked(Opcode.SETQ, numbers=(5, 60), cas=9), b"ms k 0 c C9 F5 T60\r\n\r\n"),
        (asked(Opcode.SET, b"a b", numbers=(0, 0), value=b"\r\n"), b"ms YSBi 2 c b\r\n\r\n\r\n"),
        (asked(Opcode.ADD, numbers=(0, 0)), b"ms k 0 c ME\r\n\r\n"),
        (asked(Opcode.REPLACEQ, numbers=(0, 0)), b"ms k 0 c MR\r\n\r\n"),
        # A cas unique already requires an item.
        (asked(Opcode.ADD, numbers=(0, 0), cas=9), b"ms k 0 c C9\r\n\r\n"),
        (asked(Opcode.APPEND, value=b"v", cas=9), b"ms k 1 c MA C9\r\nv\r\n"),
        (asked(Opcode.PREPENDQ, value=b"v"), b"ms k 1 c MP\r\nv\r\n"),
    ],
)
def test_stores(request_: BinaryRequest, sent: bytes) -> None:
    assert requests.storing(request_) == sent


def test_retrievals_never_win_the_right_to_recache() -> None:
    assert requests.getting(asked(Opcode.GETKQ)) == b"gets k\r\n"
    assert requests.touching(asked(Opcode.GATK, numbers=(9,))) == b"gats 9 k\r\n"


def test_keys_that_text_cannot_have_are_in_base64() -> None:
    key = b"a\nb"
    assert requests.getting(asked(Opcode.GET, key)) == b"mg YQpi b c f v\r\n"
    assert requests.touching(asked(Opcode.GAT, key, numbers=(9,))) == b"mg YQpi b c f v T9\r\n"
    assert requests.touching(asked(Opcode.TOUCH, key, numbers=(9,))) == b"mg YQpi b c f T9\r\n"
    assert requests.deleting(asked(Opcode.DELETE, key, cas=5)) == b"md YQpi b C5\r\n"
    sent = requests.counting(asked(Opcode.DECREMENT, key, numbers=(1, 2, 3)))
    assert sent == b"ma YQpi c v MD D1 b N3 J2\r\n"


def test_the_longest_key_in_base64() -> None:
    assert requests.getting(asked(Opcode.GET, b" " * 186)).startswith(b"mg ")
    with pytest.raises(requests.UnsendableKeyError):
        requests.getting(asked(Opcode.GET, b" " * 187))
    assert requests.getting(asked(Opcode.GET, b"\xff" * 250)) == b"gets %b\r\n" % (b"\xff" * 250)


def test_a_counter_is_created_unless_its_exptime_forbids_it() -> None:
    assert requests.counting(asked(Opcode.INCREMENTQ, numbers=(1, 2, 2**32 - 1), cas=4)) == (
        b"ma k c v MI D1 C4\r\n"
    )
    assert requests.counting(asked(Opcode.INCREMENT, numbers=(2**64 - 1, 2, 0))) == (
        b"ma k c v MI D18446744073709551615 N0 J2\r\n"
    )


@pytest.mark.parametrize("exptime", DATES)
def test_dates_too_late_for_text_become_its_latest_date(exptime: int) -> None:
    shown = b"%d" % min(exptime, 2**31 - 1)
    assert requests.touching(asked(Opcode.TOUCH, numbers=(exptime,))).endswith(b"T%b\r\n" % shown)
    assert requests.flushing(asked(Opcode.FLUSH, numbers=(exptime,))) == b"flush_all %b\r\n" % shown


ERRORS = [
    (b"SERVER_ERROR node a: no reply in 1 s\r\n", 0x84, b"node a: no reply in 1 s"),
    (b"SERVER_ERROR object too large for cache\r\n", 0x03, b"Too large."),
    (b"SERVER_ERROR out of memory storing object\r\n", 0x82, b"Out of memory allocating item"),
    (b"SERVER_ERROR out of memory\r\n", 0x82, b"Out of memory incrementing value"),
    (b"SERVER_ERROR out of memory writing get response\r\n", 0x82, b"Out of memory"),
    (b"CLIENT_ERROR bad data chunk\r\n", 0x04, b"bad data chunk"),
    (b"ERROR\r\n", 0x81, b"Unknown command"),
    (b"whatever\r\n", 0x84, b"whatever"),
]


@pytest.mark.parametrize(("line", "status", "text"), ERRORS)
@pytest.mark.parametrize("decode", [replies.fetched, replies.stored, replies.deleted,
                                    replies.counted, replies.flushed, replies.refused])  # fmt: skip
@pytest.mark.parametrize("opcode", [Opcode.SET, Opcode.SETQ, Opcode.GETKQ])
def test_errors_are_shown_also_to_quiet_requests(
    line: bytes, status: int, text: bytes, decode: replies.Decode, opcode: int
) -> None:
    found = decode(asked(opcode), line)
    assert (int.from_bytes(found[6:8]), found[24:]) == (status, text)
    assert found[:2] == bytes((0x81, opcode))
    assert found[12:16] == bytes((0, 0, 0, 7))


@pytest.mark.parametrize(
    "reply",
    [b"VALUE k 5 3 9\r\nabc\r\nEND\r\n", b"VA 3 c9 f5\r\nabc\r\n", b"VA 3 f5 c9 W\r\nabc\r\n"],
)
def test_hits(reply: bytes) -> None:
    for opcode, key in ((Opcode.GET, b""), (Opcode.GETKQ, b"k"), (Opcode.GATK, b"k")):
        request = asked(opcode)
        assert replies.fetched(request, reply) == packets.hit_head(request, 5, key, 3, 9) + b"abc"


def test_a_node_without_cas_uniques() -> None:
    request = asked(Opcode.GET)
    expected = packets.hit_head(request, 5, b"", 3, 0) + b"abc"
    assert replies.fetched(request, b"VALUE k 5 3\r\nabc\r\nEND\r\n") == expected


def test_misses() -> None:
    for reply in (b"END\r\n", b"EN\r\n"):
        assert replies.fetched(asked(Opcode.GETQ), reply) == b""
        assert replies.fetched(asked(Opcode.GETK), reply).endswith(b"k")
        text = packets.failure(asked(Opcode.TOUCH), Status.NOT_FOUND)
        assert replies.fetched(asked(Opcode.TOUCH), reply) == text


@pytest.mark.parametrize(
    ("opcode", "status"),
    [
        (Opcode.ADD, Status.EXISTS),
        (Opcode.ADDQ, Status.EXISTS),
        (Opcode.REPLACE, Status.NOT_FOUND),
        (Opcode.APPENDQ, Status.NOT_STORED),
        (Opcode.PREPEND, Status.NOT_STORED),
    ],
)
def test_replies_to_stores_that_failed(opcode: int, status: Status) -> None:
    request = asked(opcode)
    assert replies.stored(request, b"NS c0\r\n") == packets.failure(request, status)


def test_successes() -> None:
    request = asked(Opcode.SET)
    assert replies.stored(request, b"HD c9\r\n") == packets.reply(request, cas=9)
    assert replies.deleted(request, b"HD\r\n") == packets.reply(request)
    assert replies.flushed(request, b"OK\r\n") == packets.reply(request)
    number = packets.reply(request, (2**64 - 1).to_bytes(8), 9)
    assert replies.counted(request, b"VA 20 c9\r\n18446744073709551615\r\n") == number
    quiet = asked(Opcode.SETQ)
    assert not replies.stored(quiet, b"HD c9\r\n")
    assert not replies.deleted(quiet, b"HD\r\n")
    assert not replies.flushed(quiet, b"OK\r\n")
    assert not replies.counted(quiet, b"VA 1 c9\r\n1\r\n")


def test_a_node_that_does_not_flush() -> None:
    request = asked(Opcode.FLUSH)
    found = replies.flushed(request, b"CLIENT_ERROR flush_all not allowed\r\n")
    assert found == packets.failure(request, Status.AUTH_ERROR)


@pytest.mark.parametrize(
    ("decode", "reply"),
    [
        (replies.fetched, b"VALUE k x 1 1\r\n1\r\nEND\r\n"),
        (replies.fetched, b"VALUE k 4294967296 1 1\r\n1\r\nEND\r\n"),
        (replies.fetched, b"VALUE another_key 0 1 1\r\n1\r\nEND\r\n"),
        (replies.fetched, b"VA 1 f5\r\n1\r\n"),
        (replies.stored, b"HD\r\n"),
        (replies.counted, b"VA 1 c9\r\nx\r\n"),
        (replies.counted, b"VA 2 c9\r\n-1\r\n"),
    ],
)
def test_unreadable_replies_are_detected(decode: replies.Decode, reply: bytes) -> None:
    with pytest.raises(replies.UNREADABLE):
        decode(asked(Opcode.GET), reply)
