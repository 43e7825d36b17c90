"""``memlite top``: what servers do, in a terminal.

Everything shown comes from ``stats``, so that it works with any memcached. `readings` turns two
replies into rates, `table` those into cells, without I/O; `servers` asks, `screen` draws.
"""

__all__: list[str] = []
