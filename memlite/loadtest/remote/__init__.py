"""Servers and proxies on other machines, started through ssh.

On each machine runs ``memlite bench launcher``, which needs only what a server needs. It takes
requests on its standard input, a line of JSON each, and answers them on its standard output. What
it has started ends when its input ends, or is silent for too long: nothing is left behind when the
load tester is killed or the network fails.
"""

__all__: list[str] = []
