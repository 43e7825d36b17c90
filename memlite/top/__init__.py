"""``memlite top``: the activity of servers, in a terminal.

All figures come from ``stats``, so it works with any memcached. `readings` turns two replies into
rates, and `table` turns rates into cells, both without I/O; `servers` sends the requests, and
`screen` draws.
"""

__all__: list[str] = []
