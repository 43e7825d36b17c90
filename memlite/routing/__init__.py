"""Routing, without I/O: which of several nodes has a key.

A `Router` is made from the nodes' names and weights, in order. It places keys like other clients
and proxies: libmemcached and twemproxy (``ketama``, ``ketama-fnv1a``), pymemcache
(``rendezvous``); or by jump hash.
"""

from memlite.routing.choice import HASHES, make_router
from memlite.routing.hash_tag import HashTag
from memlite.routing.ketama import Ketama, Ring
from memlite.routing.names import node_name
from memlite.routing.router import Member, Placement, Router

__all__ = [
    "HASHES",
    "HashTag",
    "Ketama",
    "Member",
    "Placement",
    "Ring",
    "Router",
    "make_router",
    "node_name",
]
