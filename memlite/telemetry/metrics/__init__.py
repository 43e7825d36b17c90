"""Metrics: what each means, how it is read from a snapshot, and how it is written for a monitor."""

__all__: list[str] = []
