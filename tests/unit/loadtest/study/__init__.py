"""Tests of `memlite.loadtest.study`."""
