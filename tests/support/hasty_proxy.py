"""A program: a proxy that waits for less time than it should before it reads hot keys.

The first argument is a JSON object: ``lease`` and ``interval`` of following a cluster, and
``settling``, ``linger`` and ``age`` of hot keys, in seconds. The rest are ``memlite`` arguments.
"""

import json
import sys
from typing import Any

from memlite.cluster.membership import follower
from memlite.proxy import promoter
from memlite.proxy.promotions import Promotions


def main() -> int:
    """Run the proxy."""
    times = json.loads(sys.argv.pop(1))
    follower.LEASE, follower._INTERVAL = times["lease"], times["interval"]  # type: ignore[misc]
    promoter._INTERVAL = times["interval"]  # type: ignore[misc]
    promoter._LEAST_AGE = times["age"]  # type: ignore[misc]
    begin = Promotions.__init__

    def hasten(self: Promotions, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self.settling, self.linger = times["settling"], times["linger"]

    Promotions.__init__ = hasten  # type: ignore[assignment,method-assign]
    from memlite.__main__ import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
