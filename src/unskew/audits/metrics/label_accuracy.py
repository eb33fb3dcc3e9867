"""Label accuracy: the share of a batch's labels that an attacker infers, in any order, since a gradient has none."""

from __future__ import annotations

from torch import Tensor

from unskew.base.errors import UserError


def label_accuracy(true: Tensor, guessed: Tensor) -> float:
    """Percent of the labels of a batch that were guessed, counting repeated labels; true, guessed: [n] int.

    >>> import torch
    >>> label_accuracy(torch.tensor([3, 3, 7, 1]), torch.tensor([1, 3, 7, 7]))
    75.0
    """
    if true.shape != guessed.shape or true.ndim != 1 or not len(true):
        raise UserError(f"labels: expected a guess for each of {list(true.shape)} labels, found {list(guessed.shape)}")
    classes = int(max(true.max(), guessed.max())) + 1
    true_counts, guessed_counts = true.bincount(minlength=classes), guessed.bincount(minlength=classes)
    return 100.0 * float(true_counts.minimum(guessed_counts).sum()) / len(true)
