"""Spread the clients of a measurement over worker processes and addresses."""

from collections.abc import Iterator, Sequence

__all__ = ["spread"]

_Address = tuple[str, int] | str


def spread(
    clients: int, workers: int, addresses: Sequence[_Address]
) -> Iterator[tuple[int, list[_Address]]]:
    """Yield the number of clients of each worker, and their addresses.

    Args:
        clients: number of clients.
        workers: number of workers, at most the number of clients.
        addresses: one or more addresses.

    Yields:
        For each worker, its number of clients and all addresses, which its clients use in turn.
        All workers together spread their clients evenly.
    """
    begun = 0
    for worker in range(workers):
        count = clients // workers + (worker < clients % workers)
        first = begun % len(addresses)
        yield count, [*addresses[first:], *addresses[:first]]
        begun += count
