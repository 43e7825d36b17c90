"""Sockets, connections and the process around the engine."""

__all__ = ["Server"]

from memlite.server.server import Server
