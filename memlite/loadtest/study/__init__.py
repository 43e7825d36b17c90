"""``memlite bench study``: servers, proxies and clusters of both, from sweeps to models.

It measures sweeps over numbers of clients and a factorial experiment, saves each when it is
complete, and writes one report with all tables and figures.
"""

__all__: list[str] = []
