"""Moving keys from one node to another while clients use them; see docs/decisions/0041.

Requests, the meaning of their replies, and the steps of moving a key. The package performs no I/O,
so the mover and the proxies can share it, and tests can try all orders of steps.
"""

__all__: list[str] = []
