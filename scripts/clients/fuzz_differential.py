"""Compare memlite with memcached: random conversations must get the same replies.

    PYTHONPATH=. .venv/bin/python scripts/clients/fuzz_differential.py --seconds 600
    PYTHONPATH=. .venv/bin/python scripts/clients/fuzz_differential.py --backend file --seed 7

It needs memcached 1.6.45 or later (`MEMLITE_TEST_MEMCACHED` is its path). A difference is reduced
to a minimal conversation and printed with the seed that makes it again.
"""

import argparse
import random
import sys
import time

from tests.support.differential import PEER_OPTIONS, Comparison, Generator
from tests.support.servers import memcached_version, running

KINDS = {"memory": "memlite", "file": "memlite-file", "near": "memlite-near"}


def main() -> int:
    """Run the comparison; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, help="the first seed (default: random)")
    parser.add_argument("--backend", choices=KINDS, default="memory", help="memlite's backend")
    options = parser.parse_args()
    if memcached_version() < (1, 6, 45):
        parser.error("no memcached 1.6.45 or later; set MEMLITE_TEST_MEMCACHED to its path")
    seed = random.randrange(2**31) if options.seed is None else options.seed
    versioned = options.backend != "memory"
    first, differences = seed, 0
    end = time.monotonic() + options.seconds
    with running(KINDS[options.backend]) as ours, running("memcached", *PEER_OPTIONS) as theirs:
        comparison = Comparison((ours, theirs), versioned)
        while time.monotonic() < end:
            found = comparison.difference(Generator(random.Random(seed), versioned).conversation())
            if found is not None:
                differences += 1
                print(f"seed {seed}, memlite first:\n{comparison.shrink(found)}\n", flush=True)
            seed += 1
    print(f"{seed - first} conversations from seed {first}: {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
