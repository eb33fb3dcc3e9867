"""Label inference: the sign of the last layer's gradient reveals the label.

    (1)  dL/db_c = mean_i (p_ic - y_ic),   dL/dW[c, :] = mean_i (p_ic - y_ic) h_i^T
    (2)  one row: y = argmin_c db_c;  without a bias y = argmin_c sum_j dW[c, j], if h >= 0 (after ReLU or sigmoid)
    (3)  n rows: n times the argmin of db, to which 1/n is then added back;  without a bias the n smallest row sums
    (4)  one row: h = dW[c, :] / db_c     for any c with db_c != 0

(2) is exact: p_c - y_c is negative only for the label. (3) adds back what one row of that label subtracts, so that a
label can occur twice; it is exact where p is small compared with 1/n. Without a bias the labels must differ.
Source: Zhao, Mopuri, Bilen, "iDLG: Improved Deep Leakage from Gradients", 2020; (3) without a bias: Li et al. 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.audits.problem import Problem
from unskew.base.errors import UserError
from unskew.base.tree import State
from unskew.models.model import Model


def last_layer(model: Model, names: State, classes: int) -> tuple[str, str | None] | None:
    """Names of the last linear layer's weight and bias, if the attacker sees its gradient."""
    weights = [n for n in model.parameters if n in names and n.endswith("weight") and model.initial[n].ndim == 2]
    if not weights or len(model.initial[weights[-1]]) != classes:
        return None
    bias = weights[-1].removesuffix("weight") + "bias"
    return weights[-1], bias if bias in names else None


def infer_labels(weight: Tensor, bias: Tensor | None, n: int) -> Tensor:
    """Sorted labels [n] from the gradient of the last layer: weight [C, d], bias [C]."""
    if bias is None:
        return weight.sum(1).argsort()[:n].sort().values if n <= len(weight) else _subtract_and_repeat(weight.sum(1), n)
    return _subtract_and_repeat(bias, n)


def _subtract_and_repeat(db: Tensor, n: int) -> Tensor:
    remaining, labels = db.clone(), []
    for _ in range(n):  # (2), (3)
        c = int(remaining.argmin())
        labels.append(c)
        remaining[c] += 1 / n
    return torch.tensor(sorted(labels), device=db.device)


def representation(weight: Tensor, bias: Tensor) -> Tensor:
    """The input of the last layer [d], of a single row."""
    c = bias.abs().argmax()  # any class is correct; the largest gradient has the smallest rounding error
    return weight[c] / bias[c]  # (4)


def infer_labels_of_all(model: Model, target: State, classes: int, n: int) -> Tensor | None:
    """Labels [M, n] for stacked observations; None if the attacker does not see the last layer."""
    names = last_layer(model, target, classes)
    if names is None:
        return None
    weight, bias = target[names[0]], target[names[1]] if names[1] else None
    return torch.stack([infer_labels(w, None if bias is None else bias[m], n) for m, w in enumerate(weight)])


def known_or_inferred_labels(problem: Problem) -> Tensor:
    """The labels [M, n] that the attacker knows or infers."""
    labels = problem.labels
    if labels is None:
        labels = infer_labels_of_all(problem.model, problem.target, problem.classes, problem.n)
    if labels is None:
        raise UserError(
            "labels: expected the last layer in the messages, to infer them, found none; try --knows labels"
        )
    return labels
