"""The stream of operations, run against a small cache that uses memlite's own parser."""

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.operations import Operation, Operations
from memlite.loadtest.workload import OPERATIONS, Keys, Load, Values, Workload
from memlite.loadtest.workload_files import load_workload, preset_names
from memlite.protocol import Limits, TextParser
from memlite.protocol.handler import NO_SHORTCUTS
from memlite.protocol.lite import LiteParser
from tests.unit.protocol.recorder import Recorder


class Cache:
    """Executes requests, checks their keys and replies, and verifies values with `check`."""

    shortcuts = NO_SHORTCUTS

    def __init__(self, check=None):
        self.items = {}
        self.uniques = {}
        self.counts = Counter()
        self.calls = []
        self.hit_unique = None
        self._check = check
        self._parser = TextParser(Limits(item_size=2**24, commands_per_read=10**6))

    def run(self, operations):
        for operation in operations:
            self.send(operation.request, operation.kind, operation.keys, operation.replies)
            if operation.follow:
                self.send(operation.follow(self.hit_unique), operation.kind, 0, 1)

    def send(self, request, kind, keys, replies):
        self.counts.clear()
        before = len(self.calls)
        self.hit_unique = None
        assert not self._parser.receive(request, self)
        assert not self._parser.in_command
        assert len(self.calls) == before + 1, request
        assert self.counts["replies"] == replies
        assert self.counts["keys"] == keys

    def try_get(self, key):
        return False

    def execute(self, command, arguments):
        getattr(self, command.name)(*arguments)

    def _called(self, name, noreply=False):
        self.calls.append(name)
        self.counts["replies"] += not noreply

    def get(self, keys):
        self._called("get")
        self._fetch(keys)

    def gets(self, keys):
        self._called("gets")
        self._fetch(keys)
        self.hit_unique = self.uniques.get(keys[0])

    def _fetch(self, keys):
        self.counts["keys"] += len(keys)
        for key in keys:
            if key in self.items and self._check:
                assert self._check(key, self.items[key]), key

    def _store(self, key, value):
        self.items[key] = value
        self.uniques[key] = len(self.calls)

    def set(self, key, flags, exptime, value, noreply):
        self._called("set", noreply)
        self.exptime = exptime
        self._store(key, value)

    def set_framed(self, key, exptime, framed, noreply):
        head, _, rest = framed.partition(b"\r\n")
        self.set(key, int(head.split()[2]), exptime, rest[: -len(b"\r\nEND\r\n")], noreply)

    def add(self, key, flags, exptime, value, noreply):
        self._called("add", noreply)
        if key not in self.items:
            self._store(key, value)

    def replace(self, key, flags, exptime, value, noreply):
        self._called("replace", noreply)
        if key in self.items:
            self._store(key, value)

    def append(self, key, flags, exptime, value, noreply):
        self._called("append", noreply)
        self._store(key, self.items[key] + value)

    def prepend(self, key, flags, exptime, value, noreply):
        self._called("prepend", noreply)
        self._store(key, value + self.items[key])

    def cas(self, key, flags, exptime, value, unique, noreply):
        self._called("cas", noreply)
        assert unique == self.uniques[key]
        self._store(key, value)

    def delete(self, key, noreply):
        self._called("delete", noreply)
        self.items.pop(key, None)
        self.uniques.pop(key, None)

    def incr(self, key, delta, noreply):
        self._called("incr", noreply)
        self._store(key, b"%d" % (int(self.items[key]) + delta))

    def decr(self, key, delta, noreply):
        self._called("decr", noreply)
        self._store(key, b"%d" % max(0, int(self.items[key]) - delta))

    def touch(self, key, exptime, noreply):
        self._called("touch", noreply)
        self.exptime = exptime

    def reject(self, reply, noreply):
        raise AssertionError(reply)

    too_large = admin = quit = reject


def stream(workload, *, seed=1, client=0, clients=1, **options):
    return Operations(workload, seed=seed, client=client, clients=clients, **options)


def requests(workload, count=500, **options):
    return [operation.request for operation in stream(workload, **options).take(count)]


ALL = Workload(
    mix=dict.fromkeys(OPERATIONS, 1.0), keys=Keys(count=200, distribution="zipfian"), ttl=60
)


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("noreply", [False, True])
@pytest.mark.parametrize("multiget", [1, 7])
@pytest.mark.parametrize(
    "values",
    [
        Values(),
        Values(size=0),
        Values("lognormal", least=0, most=3_000),
        Values("uniform", least=5, most=60),
    ],
    ids=["fixed", "empty", "lognormal", "uniform"],
)
def test_every_operation_is_well_formed_and_verifiable(values, multiget, noreply, verify):
    workload = replace(ALL, values=values, load=Load(multiget=multiget, noreply=noreply))
    operations = stream(workload, verify=verify)
    cache = Cache(operations.check if verify else None)
    cache.run(operations.preload())
    assert len(cache.items) == 3 * 200
    cache.run(operations.take(6_000))
    called = set(cache.calls)
    assert called >= set(OPERATIONS) - {"insert", "scan", "rmw"}
    assert cache.exptime == 60


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_runs(name):
    workload = load_workload(name)
    operations = stream(workload, verify=True)
    cache = Cache(operations.check)
    if workload.preload:
        cache.run(operations.preload())
        assert len(cache.items) == workload.keys.count
    cache.run(operations.take(3_000))


def test_operations_follow_the_weights_of_the_mix():
    mix = {"get": 60.0, "set": 20.0, "delete": 15.0, "touch": 5.0, "add": 0.0}
    kinds = Counter(operation.kind for operation in stream(Workload(mix=mix)).take(40_000))
    assert set(kinds) == {"get", "set", "delete", "touch"}
    for kind, share in mix.items():
        assert kinds[kind] == pytest.approx(400 * share, rel=0.08)


def test_the_stream_does_not_depend_on_batch_sizes():
    whole = [operation.request for operation in stream(ALL).take(10_000)]
    operations = stream(ALL)
    parts = []
    for count in (1, 0, 7, 4_000, 5_000, 992):
        parts += [operation.request for operation in operations.take(count)]
    assert parts == whole
    assert [operation.request for operation in islice(stream(ALL), 50)] == whole[:50]


def test_the_stream_depends_only_on_seed_and_client():
    assert requests(ALL, client=1, clients=2) == requests(ALL, client=1, clients=2)
    assert requests(ALL, seed=2) != requests(ALL, seed=1)
    assert requests(ALL, client=0, clients=2) != requests(ALL, client=1, clients=2)


def test_request_bytes():
    keys = Keys(count=1, prefix="50%-ü-")
    for kind, expected in {
        "get": b"get %b0\r\n",
        "set": b"set %b0 0 9 3\r\n...\r\n",
        "replace": b"replace %b0 0 9 3\r\n...\r\n",
        "delete": b"delete %b0\r\n",
        "touch": b"touch %b0 9\r\n",
        "incr": b"incr %bn0 1\r\n",
        "append": b"append %ba0 0 9 3\r\n...\r\n",
        "insert": b"set %b1 0 9 3\r\n...\r\n",
        "rmw": b"get %b0\r\n",
        "cas": b"gets %b0\r\n",
    }.items():
        workload = Workload(mix={kind: 1}, keys=keys, values=Values(size=3), ttl=9)
        operations = stream(workload)
        value = next(operations.preload()).request[-5:-2]
        operation = next(one for one in operations if one.kind == kind)
        assert operation.request == (expected % "50%-ü-".encode()).replace(b"...", value)
        assert isinstance(operation, Operation)


def test_only_writes_use_noreply():
    workload = replace(ALL, load=Load(noreply=True))
    for operation in stream(workload).take(2_000):
        assert operation.request.split(b"\r\n")[0].endswith(b" noreply") == (not operation.replies)
        assert bool(operation.keys) == bool(operation.replies)
    assert all(operation.replies for operation in stream(workload).preload())


def test_second_steps():
    workload = Workload(mix={"cas": 1}, keys=Keys(count=1), values=Values(size=1))
    follow = stream(workload).take(1)[0].follow
    assert follow(77).startswith(b"cas key-0 0 0 1 77\r\n")
    assert follow(None).startswith(b"add key-0 0 0 1\r\n")
    follow = stream(replace(workload, mix={"rmw": 1})).take(1)[0].follow
    assert follow(None).startswith(b"set key-0 0 0 1\r\n")


def test_a_multiget_requests_the_given_number_of_keys():
    workload = Workload(mix={"get": 1, "set": 1}, load=Load(multiget=10))
    for operation in stream(workload).take(100):
        words = operation.request.split(b"\r\n")[0].split()
        if operation.kind == "get":
            assert (len(words), operation.keys) == (11, 10)


def test_sequential_keys_have_no_gaps():
    workload = Workload(
        mix={"get": 1, "delete": 1},
        keys=Keys(count=10**6, distribution="sequential"),
        load=Load(multiget=3),
    )
    requested = [key for request in requests(workload) for key in request.split()[1:]]
    assert requested == [b"key-%d" % number for number in range(len(requested))]


@pytest.mark.parametrize(("multiget", "count"), [(1, 1_000), (20, 1_000), (1, 5)])
def test_scans_request_consecutive_keys(multiget, count):
    workload = Workload(mix={"scan": 1}, keys=Keys(count=count), load=Load(multiget=multiget))
    lengths = Counter()
    for operation in stream(workload).take(5_000):
        numbers = [int(key.removeprefix(b"key-")) for key in operation.request.split()[1:]]
        assert numbers == [(numbers[0] + step) % count for step in range(len(numbers))]
        lengths[operation.keys] += 1
        assert operation.keys == len(numbers)
    if multiget == 1:
        assert set(lengths) == set(range(1, min(100, count) + 1))
    else:
        assert set(lengths) == {20}


def test_inserted_keys_are_new_and_unique_to_the_client():
    workload = Workload(mix={"insert": 1}, keys=Keys(count=10))
    first = [key_of(request) for request in requests(workload, 50, client=0, clients=3)]
    assert first[:3] == [b"key-10", b"key-13", b"key-16"]
    second = {key_of(request) for request in requests(workload, 50, client=1, clients=3)}
    assert len(set(first)) == 50
    assert second.isdisjoint(first)


def test_inserts_continue_after_an_earlier_run():
    workload = Workload(mix={"insert": 1, "get": 3}, keys=Keys(count=10, distribution="latest"))
    operations = stream(workload, clients=2)
    seen = Cache()
    seen.run(operations.preload())
    seen.run(stream(workload, client=1, clients=2).preload())
    seen.run(operations.take(100))
    again = stream(workload, clients=2, inserted=operations.inserted, seed=2)
    for operation in again.take(2_000):
        key = operation.request.split()[1]
        assert (key in seen.items) == (operation.kind == "get")
        seen.run([operation])


def key_of(request):
    return request.split()[1]


def test_items_do_not_grow_without_bound():
    workload = Workload(mix={"append": 1, "prepend": 1}, keys=Keys(count=20))
    operations = stream(workload)
    cache = Cache()
    cache.run(operations.preload())
    largest = 0
    for _ in range(100):
        cache.run(operations.take(400))
        largest = max(largest, *(len(value) for value in cache.items.values()))
    assert 1_600 < largest < 30_000


def test_clients_preload_disjoint_keys():
    workload = Workload(keys=Keys(count=10_001))
    stored = [
        [key_of(one.request) for one in stream(workload, client=client, clients=3).preload()]
        for client in range(3)
    ]
    everything = [key for share in stored for key in share]
    assert sorted(everything) == sorted(b"key-%d" % number for number in range(10_001))
    assert stored[1][:2] == [b"key-1", b"key-4"]


def test_concurrent_clients_set_and_get_their_own_key():
    workload = Workload(kind="concurrent", mix={}, values=Values(size=2), load=Load(multiget=5))
    taken = stream(workload, client=7, clients=50).take(4)
    assert [one.kind for one in taken] == ["set", "get", "set", "get"]
    assert taken[0].request.startswith(b"set key-7 0 0 2\r\n")
    assert taken[1].request == b"get key-7\r\n"


def test_check_detects_wrong_values():
    operations = stream(Workload(), verify=True)
    items = {}
    for operation in islice(operations.preload(), 50):
        line, _, rest = operation.request.partition(b"\r\n")
        items[line.split()[1]] = rest[:-2]
    assert all(operations.check(key, value) for key, value in items.items())
    value = items[b"key-1"]
    assert not operations.check(b"key-2", value)
    assert not operations.check(b"key-1", value[:-1])
    assert not operations.check(b"key-1", value[:-1] + b"\0")
    for key in (b"key-", b"yek-1", b"key-n1", b"key-x", b"key-" + b"1" * 5_000):
        assert not operations.check(key, value)


def test_a_missing_file_of_sizes(tmp_path):
    values = Values("file", file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="No such file"):
        stream(Workload(values=values))


@pytest.mark.parametrize("kind", ["steady", "concurrent"])
def test_the_lite_dialect(kind):
    """Operations equal those of memcached's dialect, and the server's lite parser accepts them."""
    workload = Workload(
        kind=kind, mix={"get": 1.0, "set": 1.0}, keys=Keys(count=200), values=Values(size=5)
    )
    recorder = Recorder()
    for lite, plain in (
        (stream(workload, dialect=Dialect.LITE).take(100), stream(workload).take(100)),
        (list(stream(workload, dialect=Dialect.LITE).preload()), list(stream(workload).preload())),
    ):
        expected = []
        for one, other in zip(lite, plain, strict=True):
            assert one._replace(request=b"") == other._replace(request=b"")
            TextParser(Limits()).receive(other.request, recorder)
            expected, recorder.calls = recorder.calls, []
            LiteParser(Limits()).receive(one.request, recorder)
            assert recorder.calls == expected
            recorder.calls = []
