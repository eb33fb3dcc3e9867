"""The rows of clients: where they are, how they are gathered into batches, and what a client knows of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.per_client import PerClient
from unskew.base.tree import State, Tree, tree_map
from unskew.data.augment import Augment
from unskew.protocol.client_view import ClientFacts


def gather_rows(
    x: Tensor,
    index: Tensor,
    augment: Augment,
    draw: State,
    prepare: Callable[[Tensor], Tensor],
    dtype: torch.dtype,
) -> Tensor:
    """Rows `index` [n] of x [N, ...] as model inputs, augmented where there are draws [n, ...]."""
    raw = x[index]
    return (augment.apply(raw, draw, prepare) if draw else prepare(raw)).to(dtype)


@dataclass(frozen=True)
class ClientRows:
    """Rows of all clients in one place: x [N, ...] raw, y [N] or [N, classes], and where each client's rows are."""

    x: Tensor
    y: Tensor
    index: PerClient[Tensor]  # on the host, where the plan is made
    classes: int
    prepare: Callable[[Tensor], Tensor]
    dtype: torch.dtype
    augment: Augment = field(default_factory=Augment)
    more: dict[str, Tensor] = field(default_factory=dict)
    gather: Callable[..., Tensor] = gather_rows  # takes what gather_rows takes and gives the same numbers

    def facts(self, client: int) -> ClientFacts:
        """Number of rows and label counts of a client."""
        return tree_map(lambda t: t[0], self.facts_of([client]))

    def facts_of(self, clients: list[int]) -> ClientFacts:
        """The same for several, with a leading axis; counted on the host, and moved together."""
        each = [self.index[k].numpy() for k in clients]
        rows = torch.tensor([float(len(own)) for own in each], dtype=self.dtype)
        counts = torch.from_numpy(self._counted(each)).to(self.dtype)
        return ClientFacts(to_device_async(rows, self.y.device), to_device_async(counts, self.y.device))

    def _counted(self, each: list[np.ndarray]) -> np.ndarray:
        """[m, classes] labels of each client's rows, all in one pass."""
        y = self._labels
        if y.ndim > 1:
            return np.stack([y[own].sum(0, dtype=np.float64) for own in each])
        owner, mine = np.repeat(np.arange(len(each)), [len(own) for own in each]), y[np.concatenate(each)]
        if len(mine) and not (mine.min() >= 0 and mine.max() < self.classes):
            raise UserError(
                f"labels: expected whole numbers from 0 to {self.classes - 1}, found {mine.min()} to {mine.max()}"
            )
        found = np.bincount(owner * self.classes + mine, minlength=len(each) * self.classes)
        return found.reshape(len(each), self.classes)

    @cached_property
    def _labels(self) -> np.ndarray:
        return self.y.cpu().numpy()


def to_device_async(t: Tensor, device: torch.device) -> Tensor:
    """On the device; from memory that a GPU reads by itself, so that the host goes on while it is still busy."""
    if t.device == device or device.type != "cuda":
        return t.to(device)
    return t.pin_memory().to(device, non_blocking=True)


def to_device(tree: Tree, device: torch.device) -> Tree:
    """A client's state where it is needed."""
    return tree_map(lambda t: t.to(device), tree)
