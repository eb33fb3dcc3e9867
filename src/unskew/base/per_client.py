"""One value per client, indexed by the client's number: a list, a dict, or a function evaluated on access."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MANY_CLIENTS = 20_000  # with more clients than this, nothing is computed or stored for every client
STATISTICS_CLIENTS = 1_000  # statistics then use this many evenly spaced clients
_CACHE_SIZE = 8_192  # more values than a round needs


class PerClient(Protocol[T_co]):
    """Anything indexed by client: a list of all values, or a `ComputedPerClient`."""

    def __getitem__(self, client: int, /) -> T_co: ...


class ComputedPerClient(Generic[T]):
    """Values as a pure function of the client's number; the most recent ones are cached.

    >>> ComputedPerClient(lambda client: 2 * client)[21]
    42
    """

    def __init__(self, compute: Callable[[int], T]) -> None:
        self._cached = lru_cache(_CACHE_SIZE)(compute)

    def __getitem__(self, client: int, /) -> T:
        return self._cached(client)


def clients_for_statistics(clients: int) -> Sequence[int]:
    """The clients that a statistic counts: all of them, or evenly spaced ones if there are too many.

    >>> clients_for_statistics(3), clients_for_statistics(1_000_000)
    (range(0, 3), range(0, 1000000, 1000))
    """
    return (
        range(clients)
        if clients <= MANY_CLIENTS
        else range(0, clients - clients % STATISTICS_CLIENTS, clients // STATISTICS_CLIENTS)
    )
