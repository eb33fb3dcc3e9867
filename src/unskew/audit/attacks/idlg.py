"""iDLG (Zhao et al. 2020): DLG with the labels read off the last layer first, so that only rows are searched.

    (1)  y = labels by `attacks.labels`, or known
    (2)  min over x'  sum over all tensors || grad L(x', y) - G* ||^2,   x' ~ N(0, 1) at first
    (3)  L-BFGS as in DLG

Paper: Zhao, Mopuri, Bilen, "iDLG: Improved Deep Leakage from Gradients", 2020.
The paper's is for one row; for more the labels of (1) may be wrong. An attack that fails proves nothing.
Differs: as DLG here.
"""

from __future__ import annotations

from torch import Tensor

from unskew.audit.attacks.dlg import squares
from unskew.audit.attacks.label_inference import infer_all
from unskew.audit.attacks.lbfgs import minimise
from unskew.audit.problem import Problem, Progress, Recovery, quiet
from unskew.audit.unrolled_training import ClientSecrets
from unskew.base.errors import UserError
from unskew.base.tree import State


def labels_of(problem: Problem) -> Tensor:
    """[M, n] what the attacker takes for the labels."""
    found = problem.labels
    if found is None:
        found = infer_all(problem.model, problem.target, problem.classes, problem.n)  # (1)
    if found is None:
        raise UserError("the last layer is not in what was seen, so that labels cannot be inferred; try --knows labels")
    return found


def idlg(problem: Problem, tries: int, iterations: int, seed: int, progress: Progress = quiet) -> Recovery:
    """Rows for labels that are fixed."""
    x0 = problem.noise(tries, seed, problem.n, *problem.shape)
    y = labels_of(problem)[:, None].expand(-1, tries, -1)

    def loss(hidden: list[ClientSecrets], target: State, x: Tensor, y: Tensor) -> Tensor:
        return squares(problem.guess(hidden, x, y), target)  # (2)

    slope = problem.again(loss, (x0,), (y,))

    def both(flat: Tensor) -> tuple[Tensor, Tensor]:
        values, (grads,) = slope(flat.reshape(x0.shape))
        return values.flatten(), grads.reshape(len(flat), -1)

    start = x0.reshape(problem.count * tries, -1)
    flat, value = minimise(both, start, iterations, progress)  # (3)
    return Recovery(flat.reshape(x0.shape), y, value.reshape(problem.count, tries))
