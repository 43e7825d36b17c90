"""Trace replay: lines become requests, and malformed lines are refused."""

import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.trace import TRACE_OPERATIONS, Trace
from memlite.loadtest.workload import Load, Workload
from tests.unit.loadtest.test_operations import Cache

HEADER = "time,operation,key,size\n"


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.csv"

    def make(text, *, verify=False, header=HEADER, **settings):
        file.write_bytes((header + text).encode() if isinstance(text, str) else text)
        made = Trace(Workload(trace=str(file), **settings), verify=verify)
        made.file = file
        return made

    return make


def requests(trace, client=0, clients=1):
    return [operation.request for _, operation in trace.operations(client, clients)]


def test_lines_become_requests(trace):
    text = "0,get,a,\n0.5,set,b,3\n,delete,c,\n\n1e0,incr,d,\n2,touch,e,17\n2,gets,ü,\n"
    operations = list(trace(text, ttl=9).operations(0, 1))
    assert [time for time, _ in operations] == [0, 0.5, None, 1, 2, 2]
    requests = [operation.request for _, operation in operations]
    assert requests[0] == b"get a\r\n"
    assert requests[1].startswith(b"set b 0 9 3\r\n")
    assert requests[2:] == [
        b"delete c\r\n",
        b"incr d 1\r\n",
        b"touch e 9\r\n",
        b"gets %b\r\n" % "ü".encode(),
    ]
    assert [operation.kind for _, operation in operations][:2] == ["get", "set"]
    assert [operation.keys for _, operation in operations] == [1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("noreply", [False, True])
@pytest.mark.parametrize("verify", [False, True])
def test_every_operation_is_well_formed(trace, noreply, verify):
    lines = "".join(
        f",set,{name},5\n,set,x{name},60\n,{name},{name},60\n"
        for name in TRACE_OPERATIONS
        if name not in ("incr", "decr", "append", "prepend")
    )
    replay = trace(lines + lines, verify=verify, load=Load(noreply=noreply))
    cache = Cache(replay.check if verify else None)
    cache.run(operation for _, operation in replay.operations(0, 1))
    assert len(cache.items) == 2 * 9 - 1


def test_noreply(trace):
    text = ",incr,n,\n,append,a,1\n,get,a,\n"
    lines = [
        request.split(b"\r\n")[0] for request in requests(trace(text, load=Load(noreply=True)))
    ]
    assert lines == [b"incr n 1 noreply", b"append a 0 0 1 noreply", b"get a"]


def test_second_steps(trace):
    cas, rmw = (operation for _, operation in trace(",cas,a,1\n,rmw,a,1\n").operations(0, 1))
    assert cas.request == b"gets a\r\n"
    assert cas.follow(5).startswith(b"cas a 0 0 1 5\r\n")
    assert cas.follow(None).startswith(b"add a 0 0 1\r\n")
    assert rmw.request == b"get a\r\n"
    assert rmw.follow(None).startswith(b"set a 0 0 1\r\n")


def test_lines_are_distributed_over_clients_by_key(trace):
    lines = [f"{index},get,key-{index % 50}," for index in range(1_000)]
    replay = trace("\n".join(lines))
    shares = [requests(replay, client, 3) for client in range(3)]
    keys = [set(share) for share in shares]
    assert sum(map(len, shares)) == 1_000
    assert sum(map(len, keys)) == 50
    assert all(len(share) > 200 for share in shares)
    times = [time for time, _ in replay.operations(1, 3)]
    assert times == sorted(times)


def test_the_file_is_read_lazily(trace):
    replay = trace(",get,a,\n,wrong,a,\n")
    operations = replay.operations(0, 1)
    assert next(operations)[1].request == b"get a\r\n"
    with pytest.raises(ConfigError):
        next(operations)


def test_values_are_verified(trace):
    replay = trace(",set,a,100\n,set,b,100\n", verify=True)
    first, second = (request.partition(b"\r\n")[2][:-2] for request in requests(replay))
    assert replay.check(b"a", first)
    assert not replay.check(b"a", second)
    assert not replay.check(b"a", first[:-1])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1,get,a", "has 3 columns, not 4"),
        ("1,get,a,1,2", "has 5 columns, not 4"),
        ("x,get,a,", "time must be a number of seconds or empty, not 'x'"),
        ("nan,get,a,", "time must be a number of seconds or empty, not 'nan'"),
        ("-1,get,a,", "time must be a number of seconds or empty, not '-1'"),
        ("0.5,get,a,", "time must not decrease, from 1 to 0.5"),
        ("1,get,,", "key must have 1 to 250 bytes, not 0"),
        ("1,get," + "ü" * 126 + ",", "key must have 1 to 250 bytes, not 252"),
        ("1,get,a b,", "key must not contain spaces or control characters: 'a b'"),
        ('1,get,"a\tb",', "key must not contain spaces or control characters: 'a\\tb'"),
        ("1,set,a,", "size must be from 0 to 134217728, not ''"),
        ("1,set,a,134217729", "size must be from 0 to 134217728, not '134217729'"),
        ("1,set,a,²", "size must be from 0 to 134217728, not '²'"),
        ("1,cas,a,x", "size must be from 0 to 134217728, not 'x'"),
    ],
)
def test_a_malformed_line(trace, line, problem):
    replay = trace(f"1,get,a,\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        requests(replay)
    assert str(caught.value) == f"{replay.file}: line 3: {problem}"


def test_an_unknown_operation(trace):
    with pytest.raises(ConfigError, match=r"line 2: operation must be one of get, .*, not 'scan'"):
        requests(trace("1,scan,a,\n"))


def test_malformed_csv(trace):
    with pytest.raises(ConfigError, match=r"trace\.csv: line 2: "):
        requests(trace('1,get,"a"b,\n'))


@pytest.mark.parametrize("text", [b"", b"time,key\n", b"0,get,a,\n", b'"time"x'])
def test_a_wrong_header(trace, text):
    with pytest.raises(ConfigError, match=r"trace\.csv: line 1: "):
        trace(text)


def test_a_file_that_is_not_utf_8(trace):
    with pytest.raises(ConfigError, match="must be a text file in UTF-8"):
        trace(b"\xff\xfe")


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        Trace(Workload(trace=str(tmp_path / "none")))
