"""Distillation over chosen classes: a client's majority classes, masks of classes, and masked KL divergences."""

import torch
from torch import Tensor

from unskew.base.tree import arange_like


def majority_classes(counts: Tensor) -> Tensor:
    """[C] bool: classes of which a client has more than its number of rows divided by C; never all of them.

    >>> majority_classes(torch.tensor([12.0, 11.0, 10.0, 9.0, 58.0])).tolist()
    [False, False, False, False, True]
    """
    return counts * len(counts) > counts.sum()  # exact for integers, unlike a comparison with the mean


def hard_labels(y: Tensor) -> Tensor:
    """[b] class indices; a soft label becomes its largest class."""
    return y if y.ndim == 1 else y.argmax(1)


def other_classes(y: Tensor, logits: Tensor) -> Tensor:
    """[b, C] bool: every class but the sample's label."""
    return hard_labels(y)[:, None] != arange_like(logits.shape[1], logits)


def uniform_teacher(few: Tensor, strength: Tensor | float, dtype: torch.dtype) -> dict[str, Tensor]:
    """Table for `uniform_kl` of a teacher 1/|U| on U = { c : c in few, c != y }, few [C] bool; one row per label y.

    Columns: pull [C], - strength / |U| on U; mask [C], added to logits to take y out of their softmax; and
    - strength log |U|. pull and the last column are 0 for empty U.
    """
    own = torch.diag(torch.ones_like(few, dtype=torch.bool))
    u = (few & ~own).to(dtype)
    size = u.sum(1).clamp_min(1)
    pull, constant = -strength * (u / size[:, None]), -strength * size.log()[:, None]
    mask = own.to(dtype) * (torch.finfo(dtype).min / 2)  # half as in _log_softmax
    return {"by label": torch.cat([pull, mask, constant], 1)}


def uniform_kl(teacher: dict[str, Tensor], student: Tensor, y: Tensor, tau: Tensor | float) -> Tensor:
    """strength KL(teacher || student) per sample [b], of a `uniform_teacher` and logits [b, C] at temperature tau.

    The student's softmax is over all classes but y. The teacher is looked up instead of computed, because the time of a
    small model's step is proportional to its number of operations.
    """
    rows, classes = teacher["by label"].index_select(0, hard_labels(y)), student.shape[1]
    pull, mask, constant = rows[:, :classes], rows[:, classes:-1], rows[:, -1]
    return (pull * (student / tau + mask).log_softmax(1)).sum(1) + constant


def masked_kl(teacher: Tensor, student: Tensor, of_teacher: Tensor, of_student: Tensor, tau: Tensor | float) -> Tensor:
    """tau^2 KL(teacher || student) per sample [b], from logits [b, C] at temperature tau.

    Each softmax is over its own kept classes, [b, C] bool; the teacher's must be among the student's. A sample whose
    teacher keeps no class gives 0 with gradient 0: masked entries are replaced by finite numbers before and after the
    softmax, because 0 times infinity is not 0.
    """
    log_t, log_s = _log_softmax(teacher / tau, of_teacher), _log_softmax(student / tau, of_student)
    # Not torch.where with a number, which would create a tensor for it at every step.
    each = (log_t.exp() * (log_t - log_s)).masked_fill(~of_teacher, 0)
    return tau**2 * each.sum(1)


def _log_softmax(z: Tensor, keep: Tensor) -> Tensor:
    """Log-softmax over the kept classes; half of the dtype's minimum leaves room for the subtraction inside."""
    return z.masked_fill(~keep, torch.finfo(z.dtype).min / 2).log_softmax(1)
