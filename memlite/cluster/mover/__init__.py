"""Moving keys between the nodes of a cluster: what ``memlite cluster add``, ``drain`` and so on do.

`mover` takes a move from phase to phase, `sweep` and `batches` change keys, `listing` asks nodes
for theirs.
"""

__all__: list[str] = []
