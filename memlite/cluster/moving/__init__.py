"""Moving keys from one node to another while clients use them; see docs/decisions/0041.

What is sent, what the replies mean, and the steps of moving a key. None of it does any I/O, so that
the mover and the proxies share it, and tests can try all orders of steps.
"""

__all__: list[str] = []
