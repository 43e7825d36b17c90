"""Commands by class and result, from the beginnings of replies."""

import pytest

from memlite.proxy.tally import NO_REPLY, QUIET, by_result, head_of, new_counts, status_of
from memlite.telemetry.counters import COMMAND_CLASSES


@pytest.mark.parametrize(
    ("command", "reply", "found"),
    [
        (b"get", b"VALUE a 0 1\r\nx\r\nEND\r\n", ("get", "hit")),
        (b"get", b"END\r\n", ("get", "miss")),
        (b"mg ", b"VA 1\r\nx\r\n", ("get", "hit")),
        (b"mg ", b"HD f0\r\n", ("get", "hit")),
        (b"mg ", b"HD\r\n", ("get", "hit")),
        (b"mg ", b"EN\r\n", ("get", "miss")),
        (b"mg ", b"", ("get", "miss")),  # quiet
        (b"gat", b"VALUE a 0 1\r\nx\r\nEND\r\n", ("touch", "hit")),
        (b"tou", b"TOUCHED\r\n", ("touch", "hit")),
        (b"tou", b"NOT_FOUND\r\n", ("touch", "miss")),
        (b"set", b"STORED\r\n", ("store", "stored")),
        (b"set", b"", ("store", "noreply")),
        (b"add", b"NOT_STORED\r\n", ("store", "not_stored")),
        (b"cas", b"EXISTS\r\n", ("store", "exists")),
        (b"cas", b"NOT_FOUND\r\n", ("store", "miss")),
        (b"ms ", b"HD c1\r\n", ("store", "stored")),
        (b"ms ", b"NS\r\n", ("store", "not_stored")),
        (b"ms ", b"EX\r\n", ("store", "exists")),
        (b"ms ", b"", ("store", "stored")),
        (b"set", b"SERVER_ERROR out of memory storing object\r\n", ("store", "error")),
        (b"del", b"DELETED\r\n", ("delete", "hit")),
        (b"md ", b"NF\r\n", ("delete", "miss")),
        (b"md ", b"EX O1\r\n", ("delete", "exists")),
        (b"inc", b"18446744073709551615\r\n", ("arithmetic", "hit")),
        (b"dec", b"NOT_FOUND\r\n", ("arithmetic", "miss")),
        (b"inc", b"CLIENT_ERROR cannot increment\r\n", ("arithmetic", "error")),
        (b"ma ", b"VA 1\r\n6\r\n", ("arithmetic", "hit")),
        (b"flu", b"OK\r\n", ("other", "done")),
        (b"flu", b"SERVER_ERROR node a: down\r\n", ("other", "error")),
        (b"get", b"ERROR\r\n", ("get", "error")),
    ],
)
def test_text_commands(command: bytes, reply: bytes, found: tuple[str, str]) -> None:
    counts = new_counts()
    counts[command][head_of(reply) if reply else NO_REPLY] = 3
    results = by_result(counts)
    assert results[found] == 3
    assert sum(results.values()) == 3


@pytest.mark.parametrize(
    ("command", "status", "found"),
    [
        (b"get", 0, ("get", "hit")),
        (b"get", 1, ("get", "miss")),
        (b"get", None, ("get", "miss")),
        (b"ms ", 0, ("store", "stored")),
        (b"ms ", 2, ("store", "exists")),
        (b"ms ", 5, ("store", "not_stored")),
        (b"ms ", 0x82, ("store", "error")),
        (b"ms ", None, ("store", "stored")),
        (b"md ", None, ("delete", "hit")),
        (b"ma ", 1, ("arithmetic", "miss")),
        (b"tou", 0, ("touch", "hit")),
    ],
)
def test_binary_commands(command: bytes, status: int | None, found: tuple[str, str]) -> None:
    packet = b"\x81" + bytes(5) + (status or 0).to_bytes(2) + bytes(16)
    counts = new_counts()
    counts[command][QUIET if status is None else status_of(packet)] = 2
    results = by_result(counts)
    assert results[found] == 2
    assert sum(results.values()) == 2


def test_few_heads_are_counted_whatever_the_replies() -> None:
    assert {head_of(b"%d\r\n" % number) for number in range(5000)} == {b"0"}
    flags = [head_of(b"HD f%d\r\n" % number) for number in range(100)]
    assert set(flags) == {b"HD"}


@pytest.mark.parametrize(
    ("reply", "result"),
    [(b"VA 1\r\nx\r\n", "hit"), (b"HD\r\n", "hit"), (b"EN\r\n", "miss"), (b"END\r\n", "miss")],
)
def test_the_first_three_bytes_of_a_get_are_enough(reply: bytes, result: str) -> None:
    counts = new_counts()
    counts[b"get"][reply[:3]] += 1
    assert by_result(counts)["get", result] == 1


def test_all_results_are_reported_before_they_occur() -> None:
    results = by_result({})
    assert set(results.values()) == {0}
    assert {kind for kind, _ in results} == set(COMMAND_CLASSES)
