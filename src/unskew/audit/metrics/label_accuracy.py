"""Label accuracy: how many labels of a batch an attacker names. A gradient has no order, so a guess has none either."""

from __future__ import annotations

from torch import Tensor

from unskew.base.errors import UserError


def label_accuracy(true: Tensor, guessed: Tensor) -> float:
    """Percent of the labels of a batch that were named, each as often as it occurs; true, guessed: [n] int.

    >>> import torch
    >>> label_accuracy(torch.tensor([3, 3, 7, 1]), torch.tensor([1, 3, 7, 7]))
    75.0
    """
    if true.shape != guessed.shape or true.ndim != 1 or not len(true):
        raise UserError(f"labels: expected a guess for each of {list(true.shape)} labels, found {list(guessed.shape)}")
    most = int(max(true.max(), guessed.max())) + 1
    held, named = true.bincount(minlength=most), guessed.bincount(minlength=most)
    return 100.0 * float(held.minimum(named).sum()) / len(true)
