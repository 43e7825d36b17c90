"""Foundations without dependencies: clock, errors, logging, signals and the build."""

__all__: list[str] = []
