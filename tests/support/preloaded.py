"""The fork server's last import, which makes forked processes start like small ones.

A server collects garbage when it starts. Otherwise, it would traverse all objects imported here,
and thereby copy all their pages: two thirds of the processor time of a start.
"""

import ctypes  # noqa: F401 - a server imports this and the next when it starts
import gc

import uvloop  # noqa: F401

gc.collect()
gc.freeze()
