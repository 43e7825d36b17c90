"""Servers and proxies on other machines, started through ssh.

Each machine runs ``memlite bench launcher``, which has only the dependencies of a server. It takes
requests on its standard input, a line of JSON each, and answers them on its standard output. The
processes it has started end when its input ends, or is silent for too long: none are left running
when the load tester is killed or the network fails.
"""

__all__: list[str] = []
