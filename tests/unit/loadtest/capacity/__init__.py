"""Tests of `memlite.loadtest.capacity`."""
