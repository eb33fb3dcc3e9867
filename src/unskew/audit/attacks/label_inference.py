"""Label inference from the last layer, of whose gradient the sign gives the label away.

    (1)  dL/db_c = mean_i (p_ic - y_ic),   dL/dW[c, :] = mean_i (p_ic - y_ic) h_i^T
    (2)  one row: y = argmin_c db_c;  without a bias y = argmin_c sum_j dW[c, j], if h >= 0 (after ReLU or sigmoid)
    (3)  n rows: n times the argmin of db, to which 1/n is then added back;  without a bias the n smallest row sums
    (4)  one row: h = dW[c, :] / db_c     for any c with db_c != 0

(2) is exact: p_c - y_c is negative for the label alone. (3) adds back what one row of that label takes away, so that a
label may come twice; it is exact where p is small against 1/n. Without a bias it needs labels that differ.
Source: Zhao, Mopuri, Bilen, "iDLG: Improved Deep Leakage from Gradients", 2020; (3) without a bias: Li et al. 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.base.tree import State
from unskew.models.model import Model


def head(model: Model, names: State, classes: int) -> tuple[str, str | None] | None:
    """Names of the last linear layer's weight and bias, if the attacker sees its gradient."""
    found = [n for n in model.parameters if n in names and n.endswith("weight") and model.initial[n].ndim == 2]
    if not found or len(model.initial[found[-1]]) != classes:
        return None
    bias = found[-1].removesuffix("weight") + "bias"
    return found[-1], bias if bias in names else None


def infer(weight: Tensor, bias: Tensor | None, n: int) -> Tensor:
    """Labels [n], rising, from the gradient of the last layer: weight [C, d], bias [C]."""
    if bias is None:
        return weight.sum(1).argsort()[:n].sort().values if n <= len(weight) else _spread(weight.sum(1), n)
    return _spread(bias, n)


def _spread(db: Tensor, n: int) -> Tensor:
    left, labels = db.clone(), []
    for _ in range(n):  # (2), (3)
        c = int(left.argmin())
        labels.append(c)
        left[c] += 1 / n
    return torch.tensor(sorted(labels), device=db.device)


def representation(weight: Tensor, bias: Tensor) -> Tensor:
    """The input of the last layer [d], of a single row."""
    c = bias.abs().argmax()  # any class will do; the largest rounds least
    return weight[c] / bias[c]  # (4)


def infer_all(model: Model, target: State, classes: int, n: int) -> Tensor | None:
    """[M, n] for stacked observations; None where the last layer is not seen."""
    names = head(model, target, classes)
    if names is None:
        return None
    weight, bias = target[names[0]], target[names[1]] if names[1] else None
    return torch.stack([infer(w, None if bias is None else bias[m], n) for m, w in enumerate(weight)])
