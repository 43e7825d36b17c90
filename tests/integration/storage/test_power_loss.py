"""Nothing durable is lost, and no item appears that was not written, wherever the power fails.

The system calls of a real server are recorded. At each of them, the files that a disk may hold are
made, and loaded. ``MEMLITE_TEST_POWER_OPERATIONS`` is the number of changes per client.
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from bisect import bisect_right
from collections import defaultdict

import pytest

from memlite.backends.jsonfile.load import load
from memlite.core.errors import StartError
from tests.deploy.test_system_calls import can_trace
from tests.support.power_loss import COMMAND, Disk, calls_of
from tests.support.waiting import wait_until

OPERATIONS = int(os.environ.get("MEMLITE_TEST_POWER_OPERATIONS", "40"))
CLIENTS = 3
# A change's opaque token is its number, which is also the value; the reply returns it.
TOLD = re.compile(rb"(?:HD|NF) O(\d+)\r\n")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or not can_trace(), reason="strace cannot be used"),
]


class Recording:
    """A server's system calls, and the changes that clients requested.

    Attributes:
        changes: for each key the numbers of its changes, in order; negative for a delete.
    """

    def __init__(self, folder, durability):
        self.durability = durability
        self.folder = folder / "files"
        self.folder.mkdir()
        self.path = self.folder / "cache.json"
        self.changes = defaultdict(list)
        trace, ports = folder / "trace", folder / "ports"
        process = subprocess.Popen(
            [*COMMAND, "-o", trace, sys.executable, "-m", "memlite", "-l", "127.0.0.1", "-p", "0",
             "--backend", f"file://{self.path}?compact=6000", "--durability", durability],
            env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)},
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert wait_until(ports.exists, seconds=60)
            port = int(ports.read_text().split()[2])
            asyncio.run(self._use(port))
        finally:
            os.kill(int(trace.read_text().split(" ", 1)[0]), signal.SIGTERM)
            assert process.wait(60) == 0
        self.calls = calls_of(trace)

    async def _use(self, port):
        await asyncio.gather(*(self._client(port, number) for number in range(CLIENTS)))

    async def _client(self, port, client):
        rng = random.Random(client)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in range(1, OPERATIONS + 1):
            number = turn * CLIENTS + client
            key = b"%d.%d" % (client, rng.randrange(3))
            value = b"%d" % number + b"x" * rng.randrange(900)
            deletes = rng.random() < 0.2
            if deletes:
                writer.write(b"md %b O%d\r\n" % (key, number))
            else:
                writer.write(b"ms %b %d O%d\r\n%b\r\n" % (key, len(value), number, value))
            self.changes[key].append(-number if deletes else number)
            assert TOLD.fullmatch(await asyncio.wait_for(reader.readline(), 60))
            if self.durability == "everysec":
                await asyncio.sleep(0.06)  # so that there are some syncs
        writer.close()

    def told(self):
        """Return for each change the number of calls after which its client got the reply."""
        found = {}
        for at, call in enumerate(self.calls, 1):
            if (
                call.name in ("write", "writev", "sendto", "sendmsg")
                and "<socket:" in call.arguments
            ):
                for number in TOLD.findall(call.arguments.encode("latin-1")):
                    found[int(number)] = at
        return found


@pytest.fixture(scope="module", params=["always", "everysec", "none"])
def recording(request, tmp_path_factory):
    return Recording(tmp_path_factory.mktemp("power"), request.param)


def promised_until(recording, calls):
    """Return for each number of calls how many had ended before the last promise of durability."""
    if recording.durability == "always":
        return list(range(len(calls) + 1))
    # A reply is promised if it was sent before the last sync of the journal had begun.
    until, promised = [0], 0
    for call in calls:
        if call.name in ("fsync", "fdatasync") and ".journal." in call.arguments:
            promised = max(promised, call.begun)
        until.append(promised)
    return until


def losses(recording, calls, folder):
    """Return what is wrong with the possible states of the files after a power failure."""
    rng = random.Random(1)
    disk = Disk(recording.folder)
    told = recording.told()
    until = promised_until(recording, calls)
    times = {
        key: [told[abs(number)] for number in numbers] for key, numbers in recording.changes.items()
    }
    wrong, seen = [], set()
    for done, call in enumerate(calls, 1):
        disk.replay(call)
        if call.name == "openat" and str(recording.folder) not in call.arguments:
            continue
        for state in disk.states(rng):
            identity = (frozenset(state.items()), until[done])
            if identity in seen:
                continue
            seen.add(identity)
            for file in folder.iterdir():
                file.unlink()
            for name, content in state.items():
                (folder / name.rpartition("/")[2]).write_bytes(content)
            try:
                items = load(folder / "cache.json").items
            except StartError as error:
                wrong.append(f"after {done} calls: {error}")
                continue
            for key, numbers in recording.changes.items():
                first = bisect_right(times[key], until[done])
                # The last promised change, later acknowledged ones, and the one under way.
                possible = [0, *numbers][first : bisect_right(times[key], done) + 2]
                item = items.get(key)
                value = 0 if item is None else int(re.match(rb"\d+", item.value)[0])
                if value not in [max(0, number) for number in possible]:
                    wrong.append(f"after {done} calls: {key!r} is {value}, not one of {possible}")
    assert len(seen) > 100
    return wrong


def test_nothing_is_lost_or_invented(recording, tmp_path):
    snapshots = [call for call in recording.calls if call.name == "rename"]
    assert len(snapshots) > 2  # the empty one, the one at shutdown, and compactions
    assert not losses(recording, recording.calls, tmp_path)[:5]


@pytest.mark.parametrize("recording", ["always"], indirect=True)
@pytest.mark.parametrize("without", ["fsync", "folder"])
def test_a_server_that_does_not_sync_would_be_noticed(recording, tmp_path, without):
    """Check the test itself: it must fail for a server that leaves out fsync."""
    folder = f"<{recording.folder}>"
    calls = [
        # Renamed rather than left out, because calls are numbered.
        call._replace(name="nothing")
        if "sync" in call.name and (without == "fsync" or folder in call.arguments)
        else call
        for call in recording.calls
    ]
    assert losses(recording, calls, tmp_path)
