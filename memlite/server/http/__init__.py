"""HTTP beside the cache (``--http``): metrics, health, and a page that shows them.

Its dependency comes with ``pip install 'memlite-cache[http]'``. Servers without ``--http`` import
nothing from this package.
"""

__all__: list[str] = []
