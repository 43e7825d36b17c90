"""How the clients of a measurement are spread over worker processes and over addresses."""

from collections.abc import Iterator, Sequence

__all__ = ["spread"]

_Address = tuple[str, int] | str


def spread(
    clients: int, workers: int, addresses: Sequence[_Address]
) -> Iterator[tuple[int, list[_Address]]]:
    """Yield how many clients each worker has, and where they go.

    Args:
        clients: how many there are.
        workers: how many there are; at most as many as clients.
        addresses: one or more.

    Yields:
        A number of clients and all addresses, which its clients take in turn. All workers together
        spread their clients evenly.
    """
    begun = 0
    for worker in range(workers):
        count = clients // workers + (worker < clients % workers)
        first = begun % len(addresses)
        yield count, [*addresses[first:], *addresses[:first]]
        begun += count
