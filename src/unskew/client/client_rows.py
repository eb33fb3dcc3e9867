"""The clients' training rows: which rows each client has, how they are gathered into batches, and label counts."""

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
    """Rows `index` [n] of x [N, ...] as model inputs, augmented if there are random draws [n, ...]."""
    raw = x[index]
    return (augment.apply(raw, draw, prepare) if draw else prepare(raw)).to(dtype)


@dataclass(frozen=True)
class ClientRows:
    """The rows of all clients: x [N, ...] raw, y [N] or [N, classes], and each client's row numbers."""

    x: Tensor
    y: Tensor
    index: PerClient[Tensor]  # client -> its rows in x and y; on the CPU, where the plan is made
    classes: int
    prepare: Callable[[Tensor], Tensor]
    dtype: torch.dtype
    augment: Augment = field(default_factory=Augment)
    more: dict[str, Tensor] = field(default_factory=dict)  # further columns, see `Batch.more`
    gather: Callable[..., Tensor] = gather_rows  # or a faster function with the same arguments and results

    def facts(self, client: int) -> ClientFacts:
        """Number of rows and label counts of a client."""
        return tree_map(lambda t: t[0], self.facts_of([client]))

    def facts_of(self, clients: list[int]) -> ClientFacts:
        """The same for several clients, with a leading axis; counted on the CPU and moved to the device at once."""
        each = [self.index[k].numpy() for k in clients]
        rows = torch.tensor([float(len(own)) for own in each], dtype=self.dtype)
        counts = torch.from_numpy(self._count_labels(each)).to(self.dtype)
        return ClientFacts(to_device_async(rows, self.y.device), to_device_async(counts, self.y.device))

    def _count_labels(self, each: list[np.ndarray]) -> np.ndarray:
        """[m, classes] label counts of each client's rows, in one pass over all of them."""
        y = self._labels
        if y.ndim > 1:
            return np.stack([y[own].sum(0, dtype=np.float64) for own in each])
        owner, labels = np.repeat(np.arange(len(each)), [len(own) for own in each]), y[np.concatenate(each)]
        if len(labels) and not (labels.min() >= 0 and labels.max() < self.classes):
            raise UserError(
                f"labels: expected integers from 0 to {self.classes - 1}, found {labels.min()} to {labels.max()}"
            )
        counts = np.bincount(owner * self.classes + labels, minlength=len(each) * self.classes)
        return counts.reshape(len(each), self.classes)

    @cached_property
    def _labels(self) -> np.ndarray:
        return self.y.cpu().numpy()


def to_device_async(t: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device, through pinned memory, so that the copy to a busy GPU does not block the CPU."""
    if t.device == device or device.type != "cuda":
        return t.to(device)
    return t.pin_memory().to(device, non_blocking=True)


def to_device(tree: Tree, device: torch.device) -> Tree:
    """The tree's tensors on the device."""
    return tree_map(lambda t: t.to(device), tree)
