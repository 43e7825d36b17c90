"""Nodes that register themselves: leases in a store that compares versions.

`document` says what is in the store, `member` joins and renews, `warden` removes members that are
gone, `follower` keeps a proxy up to date.
"""

__all__: list[str] = []
