"""Distillation over chosen classes: which labels a client has plenty of, which classes count, and the divergence."""

import torch
from torch import Tensor

from unskew.base.tree import numbered


def majority(counts: Tensor) -> Tensor:
    """[C] bool: labels of which a client has more than its rows divided by the classes; never all of them.

    >>> majority(torch.tensor([12.0, 11.0, 10.0, 9.0, 58.0])).tolist()
    [False, False, False, False, True]
    """
    return counts * len(counts) > counts.sum()  # products of whole numbers are exact, a mean of equal ones may not be


def label(y: Tensor) -> Tensor:
    """[b]; a soft label stands for its largest class."""
    return y if y.ndim == 1 else y.argmax(1)


def others(y: Tensor, logits: Tensor) -> Tensor:
    """[b, C] bool: every class but the sample's label."""
    return label(y)[:, None] != numbered(logits.shape[1], logits)


def uniform_teacher(few: Tensor, strength: Tensor | float, dtype: torch.dtype) -> dict[str, Tensor]:
    """What `uniform_kl` needs of a teacher 1/|U| on U = { c : c in few, c != y }, few [C] bool: a table by label y.

    Its columns: pull [C], - strength / |U| on U; mask [C], which added to logits takes y out of their softmax; and
    - strength log |U|. The first and the last are 0 for empty U.
    """
    own = torch.diag(torch.ones_like(few, dtype=torch.bool))
    u = (few & ~own).to(dtype)
    size = u.sum(1).clamp_min(1)
    pull, constant = -strength * (u / size[:, None]), -strength * size.log()[:, None]
    mask = own.to(dtype) * (torch.finfo(dtype).min / 2)  # half as in _log_softmax
    return {"by label": torch.cat([pull, mask, constant], 1)}


def uniform_kl(teacher: dict[str, Tensor], student: Tensor, y: Tensor, tau: Tensor | float) -> Tensor:
    """strength KL(teacher || student) per sample [b], of a `uniform_teacher` and logits [b, C] at temperature tau.

    The student's softmax is over all classes but y. The teacher is looked up, not computed: a small model's step takes
    as long as it has operations.
    """
    found, classes = teacher["by label"].index_select(0, label(y)), student.shape[1]
    pull, mask, constant = found[:, :classes], found[:, classes:-1], found[:, -1]
    return (pull * (student / tau + mask).log_softmax(1)).sum(1) + constant


def masked_kl(teacher: Tensor, student: Tensor, of_teacher: Tensor, of_student: Tensor, tau: Tensor | float) -> Tensor:
    """tau^2 KL(teacher || student) per sample [b], from logits [b, C] at temperature tau.

    Each softmax is over its own kept classes, [b, C] bool, the teacher's among the student's. A sample of which the
    teacher keeps no class gives 0, with gradient 0: what is left out is replaced before the softmax and after it, by
    finite numbers, because 0 times infinity is not 0.
    """
    log_t, log_s = _log_softmax(teacher / tau, of_teacher), _log_softmax(student / tau, of_student)
    # Not torch.where with a number, which becomes a tensor of its own at every step.
    each = (log_t.exp() * (log_t - log_s)).masked_fill(~of_teacher, 0)
    return tau**2 * each.sum(1)


def _log_softmax(z: Tensor, keep: Tensor) -> Tensor:
    """Over the kept classes; half of the least number leaves room for the subtraction inside."""
    return z.masked_fill(~keep, torch.finfo(z.dtype).min / 2).log_softmax(1)
