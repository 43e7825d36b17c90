"""What a fork server imports last: the processes that it forks start as small ones do.

A server collects garbage when it starts. It would otherwise go through all that has been imported
here, and so get a copy of all those pages: two thirds of the processor time of a start.
"""

import ctypes  # noqa: F401 - a server imports this and the next when it starts
import gc

import uvloop  # noqa: F401

gc.collect()
gc.freeze()
