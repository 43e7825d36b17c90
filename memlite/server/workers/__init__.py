"""Several processes that serve one table of items as one server (``-t``)."""

__all__: list[str] = []
