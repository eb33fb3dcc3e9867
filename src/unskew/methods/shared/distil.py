"""Distillation over chosen classes: which labels a client has plenty of, which classes count, and the divergence."""

import torch
from torch import Tensor


def majority(counts: Tensor) -> Tensor:
    """[C] bool: labels of which a client has more than its rows divided by the classes; never all of them.

    >>> majority(torch.tensor([12.0, 11.0, 10.0, 9.0, 58.0])).tolist()
    [False, False, False, False, True]
    """
    return counts * len(counts) > counts.sum()  # products of whole numbers are exact, a mean of equal ones may not be


def others(y: Tensor, logits: Tensor) -> Tensor:
    """[b, C] bool: every class but the sample's label; a soft label stands for its largest class."""
    label = y if y.ndim == 1 else y.argmax(1)
    return label[:, None] != torch.arange(logits.shape[1], device=logits.device)


def masked_kl(teacher: Tensor, student: Tensor, of_teacher: Tensor, of_student: Tensor, tau: Tensor | float) -> Tensor:
    """tau^2 KL(teacher || student) per sample [b], from logits [b, C] at temperature tau.

    Each softmax is over its own kept classes, [b, C] bool, the teacher's among the student's. A sample of which the
    teacher keeps no class gives 0, with gradient 0: what is left out is replaced before the softmax and after it, by
    finite numbers, because 0 times infinity is not 0.
    """
    log_t, log_s = _log_softmax(teacher / tau, of_teacher), _log_softmax(student / tau, of_student)
    # Not torch.where with a number: on a GPU that copies it from the host, which no recorded step may do.
    each = (log_t.exp() * (log_t - log_s)).masked_fill(~of_teacher, 0)
    return tau**2 * each.sum(1)


def _log_softmax(z: Tensor, keep: Tensor) -> Tensor:
    """Over the kept classes; half of the least number leaves room for the subtraction inside."""
    return z.masked_fill(~keep, torch.finfo(z.dtype).min / 2).log_softmax(1)
