"""Compare memlite with memcached: random conversations must get the same replies.

    PYTHONPATH=. .venv/bin/python scripts/clients/fuzz_differential.py --seconds 600
    PYTHONPATH=. .venv/bin/python scripts/clients/fuzz_differential.py --backend file --seed 7
    PYTHONPATH=. .venv/bin/python scripts/clients/fuzz_differential.py --tls
    PYTHONPATH=. .venv/bin/python scripts/clients/fuzz_differential.py --threads 2
    PYTHONPATH=. .venv/bin/python scripts/clients/fuzz_differential.py --proxy

It needs memcached 1.6.45 or later (`MEMLITE_TEST_MEMCACHED` is its path). A difference is reduced
to a minimal conversation and printed with the seed that reproduces it.
"""

import argparse
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.cluster.test_proxy_binary_differential import compared
from tests.support.certificates import Authority, client_context
from tests.support.differential import PEER_OPTIONS, Comparison, Conversation, Generator
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, memcached_version, running

KINDS = {"memory": "memlite", "file": "memlite-file", "near": "memlite-near", "gs": "memlite"}


def start(
    backend: str, tls: bool, threads: int, proxied: bool, stack: contextlib.ExitStack
) -> RunningServer:
    """Start memlite and the servers it needs; return the server for clients to connect to."""
    flags: tuple[str, ...] = ("-t", str(threads))
    context = None
    if backend == "gs":
        from memlite.testing.gcs_emulator import emulator_thread

        emulator = stack.enter_context(emulator_thread(["fuzz"]))
        flags = (*flags, "--backend", f"gs://fuzz/p?endpoint={emulator.url}")
    if tls:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        issued = Authority(folder).issue("server")
        flags, context = (*flags, *issued.flags), client_context(issued.ca)
    server = stack.enter_context(running(KINDS[backend], *flags, tls=context))
    return stack.enter_context(proxy([server])) if proxied else server


def without_half_close(conversation: Conversation) -> Conversation:
    """Return a conversation without its end of input, which Python's TLS cannot send."""
    return [batch for batch in conversation if not batch.last]


def main() -> int:
    """Run the comparison; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, help="the first seed (default: random)")
    parser.add_argument("--backend", choices=KINDS, default="memory", help="memlite's backend")
    parser.add_argument("--tls", action="store_true", help="speak TLS with memlite")
    parser.add_argument("--threads", type=int, default=1, help="memlite's workers (default: 1)")
    parser.add_argument("--proxy", action="store_true", help="compare a proxy in front of memlite")
    options = parser.parse_args()
    if options.proxy and options.tls:
        parser.error("--proxy cannot be combined with --tls")
    if memcached_version() < (1, 6, 45):
        parser.error("memcached 1.6.45 or later not found; set MEMLITE_TEST_MEMCACHED to its path")
    seed = random.randrange(2**31) if options.seed is None else options.seed
    versioned = options.backend != "memory"
    first, differences = seed, 0
    with contextlib.ExitStack() as stack:
        ours = start(options.backend, options.tls, options.threads, options.proxy, stack)
        theirs = stack.enter_context(running("memcached", *PEER_OPTIONS))
        comparison = Comparison((ours, theirs), versioned, forgets_reads=options.backend == "gs")
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            conversation = Generator(random.Random(seed), versioned).conversation()
            if options.tls:
                conversation = without_half_close(conversation)
            if options.proxy:
                conversation = compared(conversation)
            found = comparison.difference(conversation) if conversation else None
            if found is not None:
                differences += 1
                print(f"seed {seed}, memlite first:\n{comparison.shrink(found)}\n", flush=True)
            seed += 1
    print(f"{seed - first} conversations from seed {first}: {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
