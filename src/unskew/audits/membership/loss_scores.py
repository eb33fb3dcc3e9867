"""Scores from the loss: a row with a small loss, or whose loss an update lowered, was likely trained on.

(1) of a model:    score = -CE(f(w; x), y)                          (Yeom et al. 2018)
(2) of an update:  score = CE(f(w before; x), y) - CE(f(w after; x), y), the gain of the row
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.audits.membership.roc import Array
from unskew.base.errors import UserError
from unskew.base.tree import State
from unskew.models.model import Model

BATCH = 512


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Model inputs x [n, ...] with labels y [n]."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or not len(self.y):
            raise UserError(f"membership: expected a label per row, at least one, found {len(self.x)}, {len(self.y)}")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Array | np.ndarray) -> LabelledRows:
        """The chosen rows; rows: [m] indices or [n] bool."""
        index = torch.from_numpy(np.flatnonzero(rows) if rows.dtype == bool else rows)
        return LabelledRows(self.x[index], self.y[index])


def concatenate(first: LabelledRows, second: LabelledRows) -> LabelledRows:
    """The rows of both, in order."""
    return LabelledRows(torch.cat([first.x, second.x]), torch.cat([first.y, second.y]))


@torch.no_grad()
def logits(model: Model, state: State, rows: LabelledRows) -> Tensor:
    """Logits [n, classes] in eval mode, as float64 because confident models differ only in the last digits."""
    return torch.cat([model.run(state, rows.x[i : i + BATCH]).double() for i in range(0, len(rows), BATCH)])


def losses(model: Model, state: State, rows: LabelledRows) -> Array:
    """Cross-entropy of each row."""
    return F.cross_entropy(logits(model, state, rows), rows.y, reduction="none").cpu().numpy()


def score_by_loss(model: Model, state: State, rows: LabelledRows) -> Array:
    """(1)"""
    return -losses(model, state, rows)


def score_by_gain(model: Model, before: State, after: State, rows: LabelledRows) -> Array:
    """(2)"""
    return losses(model, before, rows) - losses(model, after, rows)
