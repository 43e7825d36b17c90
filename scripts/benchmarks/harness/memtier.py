"""memtier_benchmark, a third-party program, in place of this repository's load generator."""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.processes import HOST, BenchError, pinned

__all__ = ["as_load", "generate", "options"]


def options(load: Mapping[str, int]) -> list[str]:
    """Return the options for a load, given as options of `loadgen.c` without their hyphens.

    A get of several keys counts as one request here, so that there are more of them per set.
    """
    found = [
        f"--ratio={load['sets']}:{load['gets']}",
        f"--data-size={load['value-size']}",
        "--key-minimum=1",
        f"--key-maximum={load['keys']}",
        "--key-prefix=key-",
        f"--pipeline={load['pipeline']}",
    ]
    if load["multiget"] > 1:
        found.append(f"--multi-key-get={load['multiget']}")
    return found


def as_load(printed: Mapping[str, Any]) -> dict[str, Any]:
    """Return memtier's results in the format of `loadgen.c`; each key is an operation."""
    found = printed["ALL STATS"]
    seconds = found["Runtime"]["Total duration"] / 1000
    gets = found["Gets"]
    hits, misses = (round(seconds * gets[name]) for name in ("Hits/sec", "Misses/sec"))
    sets = found["Sets"]["Count"]
    return {
        "operations": sets + hits + misses,
        "seconds": seconds,
        "hits": hits,
        "misses": misses,
        "sets": sets,
    }


def generate(
    program: str, port: int, core: int, connections: int, arguments: Sequence[str]
) -> dict[str, Any]:
    """Run it on `core`; return its results, see `as_load`.

    Raises:
        BenchError: it failed, or a connection did.
    """
    with tempfile.TemporaryDirectory(prefix="memlite-bench-") as directory:
        results = Path(directory) / "results.json"
        command = [
            program, f"--server={HOST}", f"--port={port}", "--protocol=memcache_text",
            "--threads=1", f"--clients={connections}", "--hide-histogram",
            f"--json-out-file={results}", *arguments,
        ]  # fmt: skip
        with pinned(core):
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not results.exists():
            last = done.stderr.strip().rpartition("\n")[2]
            raise BenchError(f"memtier_benchmark failed with code {done.returncode}: {last}")
        printed = json.loads(results.read_text(encoding="utf-8"))
    errors = printed["ALL STATS"]["Totals"]["Connection Errors"]
    if errors:
        raise BenchError(f"memtier_benchmark had {errors:.0f} connection errors")
    return as_load(printed)
