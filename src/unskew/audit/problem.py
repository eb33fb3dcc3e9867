"""What an attack is given, and what it gives back: the same for every attack, and free of any run's folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from unskew.audit.unrolled_training import ClientSecrets
from unskew.base.tree import State, tree_map
from unskew.engines.stacked.cuda_graph import CudaGraph
from unskew.models.model import Model

Progress = Callable[[int, int], None]  # steps done, steps in all


def quiet(done: int, total: int) -> None:
    """Tells nobody."""


class PixelRange(NamedTuple):
    """Where pixels end: lowest and highest value of a row, each [channels, 1, 1]."""

    low: Tensor
    high: Tensor


class Recovery(NamedTuple):
    """Rows x [M, R, n, ...], labels y [M, R, n] and matching loss [M, R] of M observations and R tries each."""

    x: Tensor
    y: Tensor
    loss: Tensor


@dataclass(frozen=True)
class Problem:
    """M observations of the same shape, each the (weighted) mean over the same number of clients.

    replay(hidden, x, y) gives what one client would have been seen to send; target holds what was, [M, ...].
    """

    replay: Callable[[ClientSecrets, Tensor, Tensor], State]
    model: Model
    target: State
    hidden: list[ClientSecrets]  # one for each client of an observation, stacked over the M
    share: list[float]  # each client's weight
    sizes: list[int]  # rows of each client
    shape: tuple[int, ...]  # of one row
    classes: int
    labels: Tensor | None = None  # [M, n] where the attacker knows them
    box: PixelRange | None = None

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def count(self) -> int:
        """M."""
        return len(next(iter(self.target.values())))

    @property
    def like(self) -> Tensor:
        """Device and type of the numbers."""
        return next(iter(self.target.values()))

    def part(self, first: int, last: int) -> Problem:
        """Some of the observations."""
        cut = [tree_map_list(lambda t: t[first:last], h) for h in self.hidden]
        labels = None if self.labels is None else self.labels[first:last]
        target = {name: t[first:last] for name, t in self.target.items()}
        return replace(self, target=target, hidden=cut, labels=labels)

    def guess(self, hidden: list[ClientSecrets], x: Tensor, y: Tensor) -> State:
        """What rows x [n, ...] with labels y would have been seen as: the mean over the clients."""
        parts = zip(hidden, torch.split(x, self.sizes), torch.split(y, self.sizes))
        seen = [self.replay(*one) for one in parts]
        return {name: sum(p * s[name] for p, s in zip(self.share, seen)) for name in seen[0]}  # type: ignore[misc]

    def each(
        self, loss: Callable[..., Tensor], variables: tuple[Tensor, ...], fixed: tuple[Tensor, ...] = ()
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """loss(hidden, target, *variables, *fixed) [M, R] and its gradients, for variables and fixed [M, R, ...]."""
        given = (*variables, *fixed)
        found = torch.func.grad_and_value(loss, argnums=tuple(range(2, 2 + len(variables))))
        tries = torch.func.vmap(found, in_dims=(None, None, *(0 for _ in given)))
        grads, losses = torch.func.vmap(tries)(self.hidden, self.target, *given)
        return losses.detach(), tuple(g.detach() for g in grads)

    def again(
        self, loss: Callable[..., Tensor], like: tuple[Tensor, ...], fixed: tuple[Tensor, ...] = ()
    ) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]:
        """`each` for variables shaped as `like`, many times: on a GPU it is recorded once and then played."""
        places = tuple(t.detach().clone() for t in like)
        found: list[tuple[Tensor, tuple[Tensor, ...]]] = []

        def once() -> None:
            found[:] = [self.each(loss, places, fixed)]

        step = CudaGraph(once, self.like.device)

        def run(*variables: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            for place, value in zip(places, variables):
                place.copy_(value)
            step()
            losses, grads = found[0]
            return losses.clone(), tuple(g.clone() for g in grads)  # the next play writes over them

        return run

    def noise(self, tries: int, seed: int, *shape: int) -> Tensor:
        """N(0, 1) [M, tries, *shape]; the same numbers for an observation wherever it stands."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(tries, *shape, generator=generator, dtype=torch.float64)
        return drawn.to(self.like).expand(self.count, *drawn.shape).clone()


def tree_map_list(fn: Callable[[Tensor], Tensor], hidden: ClientSecrets) -> ClientSecrets:
    """`tree_map` that also goes into the list of steps."""
    moments = [tree_map(fn, moment) for moment in hidden.moments]
    return ClientSecrets(fn(hidden.rows), moments, tree_map(fn, hidden.client_state))
