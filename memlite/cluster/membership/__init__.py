"""Nodes that register themselves: leases in a store that compares versions.

`document` defines the content of the store, `member` joins and renews, `warden` removes failed
members, and `follower` keeps a proxy up to date.
"""

__all__: list[str] = []
