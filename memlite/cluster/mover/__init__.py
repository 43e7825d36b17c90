"""Moving keys between the nodes of a cluster: the work of ``memlite cluster add``, ``drain`` etc.

`mover` takes a move from phase to phase, `batches` changes many keys at a time with the steps of
`memlite.cluster.moving`, and `listing` asks nodes for their keys. The cluster's store records the
progress of a move (`memlite.cluster.membership.moves`).
"""

__all__: list[str] = []
