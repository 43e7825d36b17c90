"""Shared parts of the backends with a store on the network."""

__all__: list[str] = []
