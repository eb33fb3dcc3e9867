"""Input and output of an attack: the same for every attack, and independent of any run's folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from unskew.audits.unrolled_training import ClientSecrets
from unskew.base.tree import State, tree_map
from unskew.engines.stacked.cuda_graph import CudaGraph
from unskew.models.model import Model

Progress = Callable[[int, int], None]  # steps done, steps in all


def no_progress(done: int, total: int) -> None:
    """Ignores progress."""


class PixelRange(NamedTuple):
    """Lowest and highest possible value of a model input by channel, each [channels, 1, 1]."""

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

    replay(secrets, x, y) simulates one client's message on guessed rows; target holds the observed ones, [M, ...].
    """

    replay: Callable[[ClientSecrets, Tensor, Tensor], State]
    model: Model
    target: State
    secrets: list[ClientSecrets]  # one for each client of an observation, stacked over the M observations
    share: list[float]  # each client's weight
    sizes: list[int]  # rows of each client
    shape: tuple[int, ...]  # of one row
    classes: int
    labels: Tensor | None = None  # [M, n] where the attacker knows them
    pixel_range: PixelRange | None = None

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def count(self) -> int:
        """M, the number of observations."""
        return len(next(iter(self.target.values())))

    @property
    def like(self) -> Tensor:
        """A tensor with the device and dtype of the attack."""
        return next(iter(self.target.values()))

    def part(self, first: int, last: int) -> Problem:
        """Observations first to last - 1."""
        secrets = [map_secrets(lambda t: t[first:last], client) for client in self.secrets]
        labels = None if self.labels is None else self.labels[first:last]
        target = {name: t[first:last] for name, t in self.target.items()}
        return replace(self, target=target, secrets=secrets, labels=labels)

    def simulate(self, secrets: list[ClientSecrets], x: Tensor, y: Tensor) -> State:
        """The observation that rows x [n, ...] with labels y would have caused: the mean over the clients."""
        clients = zip(secrets, torch.split(x, self.sizes), torch.split(y, self.sizes))
        sent = [self.replay(*client) for client in clients]
        return {name: sum(p * s[name] for p, s in zip(self.share, sent)) for name in sent[0]}  # type: ignore[misc]

    def loss_and_grad(
        self, loss: Callable[..., Tensor], variables: tuple[Tensor, ...], fixed: tuple[Tensor, ...] = ()
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """loss(secrets, target, *variables, *fixed) [M, R] and its gradients, for variables and fixed [M, R, ...]."""
        inputs = (*variables, *fixed)
        grad_and_value = torch.func.grad_and_value(loss, argnums=tuple(range(2, 2 + len(variables))))
        over_tries = torch.func.vmap(grad_and_value, in_dims=(None, None, *(0 for _ in inputs)))
        grads, losses = torch.func.vmap(over_tries)(self.secrets, self.target, *inputs)
        return losses.detach(), tuple(g.detach() for g in grads)

    def captured_loss_and_grad(
        self, loss: Callable[..., Tensor], like: tuple[Tensor, ...], fixed: tuple[Tensor, ...] = ()
    ) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]:
        """`loss_and_grad` for repeated calls with variables shaped as `like`: a CUDA graph on a GPU."""
        static_inputs = tuple(t.detach().clone() for t in like)
        outputs: list[tuple[Tensor, tuple[Tensor, ...]]] = []

        def compute() -> None:
            outputs[:] = [self.loss_and_grad(loss, static_inputs, fixed)]

        step = CudaGraph(compute, self.like.device)

        def run(*variables: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            for static_input, value in zip(static_inputs, variables):
                static_input.copy_(value)
            step()
            losses, grads = outputs[0]
            return losses.clone(), tuple(g.clone() for g in grads)  # the next replay overwrites the outputs

        return run

    def noise(self, tries: int, seed: int, *shape: int) -> Tensor:
        """N(0, 1) [M, tries, *shape]; all observations get the same numbers, so their grouping changes no result."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(tries, *shape, generator=generator, dtype=torch.float64)
        return drawn.to(self.like).expand(self.count, *drawn.shape).clone()


def map_secrets(fn: Callable[[Tensor], Tensor], secrets: ClientSecrets) -> ClientSecrets:
    """`tree_map` that also descends into the list of steps."""
    steps = [tree_map(fn, step) for step in secrets.steps]
    return ClientSecrets(fn(secrets.rows), steps, tree_map(fn, secrets.client_state))
