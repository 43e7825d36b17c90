"""Check that the cache at MEMCACHED_HOST:MEMCACHED_PORT works: exit code 0 if it does, else 1.

A smoke test after a deployment, with pymemcache. Its keys are unique to the run, and expire.
"""

import os
import sys
import uuid
from contextlib import closing

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError


def check(client: Client) -> None:
    """Set, get, cas, incr and delete, and check each reply."""
    prefix = f"smoke:{uuid.uuid4().hex}"
    text, count = f"{prefix}:text", f"{prefix}:count"

    expect("get of a missing key", client.get(text), None)
    expect("set", client.set(text, b"one", expire=60, noreply=False), True)
    expect("add of an existing key", client.add(text, b"no", noreply=False), False)
    expect("get", client.get(text), b"one")

    _, unique = client.gets(text)
    expect("cas", client.cas(text, b"two", unique, expire=60, noreply=False), True)
    expect("cas with an old unique", client.cas(text, b"no", unique, noreply=False), False)
    expect("get after cas", client.get(text), b"two")

    expect("set of a number", client.set(count, b"41", expire=60, noreply=False), True)
    expect("incr", client.incr(count, 1), 42)
    expect("decr", client.decr(count, 2), 40)
    expect("get of both", client.get_many([text, count]), {text: b"two", count: b"40"})

    expect("delete", client.delete(text, noreply=False), True)
    expect("delete of a missing key", client.delete(text, noreply=False), False)
    expect("get after delete", client.get(text), None)
    client.delete(count, noreply=False)


def expect(what: str, reply: object, wanted: object) -> None:
    """Print a step, or raise if its reply is wrong."""
    if reply != wanted:
        raise AssertionError(f"{what}: {reply!r} instead of {wanted!r}")
    print(f"ok  {what}")


def main() -> int:
    """Check the server that the environment names; return the exit code."""
    host = os.environ.get("MEMCACHED_HOST") or "127.0.0.1"
    port = int(os.environ.get("MEMCACHED_PORT") or 11211)
    try:
        with closing(Client((host, port), connect_timeout=5, timeout=15)) as client:
            print(f"memlite {client.version().decode()} at {host}:{port}")
            check(client)
    except (AssertionError, MemcacheError, OSError) as error:
        print(f"FAILED  {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
