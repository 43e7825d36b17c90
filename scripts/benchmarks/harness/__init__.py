"""Shared by the benchmarks: server processes, the load generator, scenarios, a raw client."""
