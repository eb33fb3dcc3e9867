"""One value per client, looked up by the client's number: a list, a dict, or a rule that works it out when asked."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MANY = 20_000  # beyond so many clients nothing is done or kept for every one of them
LOOKED_AT = 1_000  # who is counted in their place
_RECENT = 8_192  # values that a rule remembers: more than a round asks for


class PerClient(Protocol[T_co]):
    """What a list of all clients' values and a rule have in common."""

    def __getitem__(self, client: int, /) -> T_co: ...


class ComputedPerClient(Generic[T]):
    """Values as a pure function of the client's number; the latest ones are remembered.

    >>> ComputedPerClient(lambda client: 2 * client)[21]
    42
    """

    def __init__(self, rule: Callable[[int], T]) -> None:
        self._recent = lru_cache(_RECENT)(rule)

    def __getitem__(self, client: int, /) -> T:
        return self._recent(client)


def looked_at(clients: int) -> Sequence[int]:
    """Whom a statistic counts: everybody, or evenly spaced clients where there are too many.

    >>> looked_at(3), looked_at(1_000_000)
    (range(0, 3), range(0, 1000000, 1000))
    """
    return range(clients) if clients <= MANY else range(0, clients - clients % LOOKED_AT, clients // LOOKED_AT)
