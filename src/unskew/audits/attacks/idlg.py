"""iDLG (Zhao et al. 2020): DLG with labels inferred from the last layer first, so that only rows are optimised.

    (1)  y = labels by `label_inference.py`, or known
    (2)  min over x'  sum over all tensors || grad L(x', y) - G* ||^2,   x' ~ N(0, 1) at first
    (3)  L-BFGS as in DLG

Paper: Zhao, Mopuri, Bilen, "iDLG: Improved Deep Leakage from Gradients", 2020.
The paper attacks one row; with more the labels of (1) may be wrong. A failed attack proves nothing.
Differs: as `dlg.py` does.
"""

from __future__ import annotations

from torch import Tensor

from unskew.audits.attacks.dlg import squared_distance
from unskew.audits.attacks.label_inference import known_or_inferred_labels
from unskew.audits.attacks.lbfgs import minimise
from unskew.audits.problem import Problem, Progress, Recovery, no_progress
from unskew.audits.unrolled_training import ClientSecrets
from unskew.base.tree import State


def idlg(problem: Problem, tries: int, iterations: int, seed: int, progress: Progress = no_progress) -> Recovery:
    """Recover rows for fixed labels."""
    x0 = problem.noise(tries, seed, problem.n, *problem.shape)
    y = known_or_inferred_labels(problem)[:, None].expand(-1, tries, -1)  # (1)

    def loss(secrets: list[ClientSecrets], target: State, x: Tensor, y: Tensor) -> Tensor:
        return squared_distance(problem.simulate(secrets, x, y), target)  # (2)

    loss_and_grad = problem.captured_loss_and_grad(loss, (x0,), (y,))

    def value_and_grad(flat: Tensor) -> tuple[Tensor, Tensor]:
        values, (grads,) = loss_and_grad(flat.reshape(x0.shape))
        return values.flatten(), grads.reshape(len(flat), -1)

    start = x0.reshape(problem.count * tries, -1)
    flat, value = minimise(value_and_grad, start, iterations, progress)  # (3)
    return Recovery(flat.reshape(x0.shape), y, value.reshape(problem.count, tries))
