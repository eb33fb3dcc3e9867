"""DLG (Zhu et al. 2019): find rows and labels whose gradient is the observed one.

    (1)  x' ~ N(0, 1), l' ~ N(0, 1)     rows and label logits, both free
    (2)  min  sum over all tensors || grad L(x', softmax(l')) - G* ||^2
    (3)  L-BFGS, learning rate 1, 300 iterations of 20 evaluations

Paper: Zhu, Liu, Han, "Deep Leakage from Gradients", NeurIPS 2019.
Needs second derivatives, which are zero almost everywhere for ReLU nets, so the attack stalls there. Some starts
diverge, so it is tried from several. A failed attack proves nothing.
Differs: the loss is the method's own, and for several local steps the gradient is the mean of `unrolled_training.py`;
a step of (3) that does not lower the loss is halved (`lbfgs.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.audits.attacks.lbfgs import minimise
from unskew.audits.problem import Problem, Progress, Recovery, no_progress
from unskew.audits.unrolled_training import ClientSecrets
from unskew.base.tree import State


def squared_distance(guess: State, target: State) -> Tensor:
    """(2)."""
    return torch.stack([(guess[name] - t).square().sum() for name, t in target.items()]).sum()


def dlg(problem: Problem, tries: int, iterations: int, seed: int, progress: Progress = no_progress) -> Recovery:
    """Recover rows and labels together."""
    n, classes, row = problem.n, problem.classes, problem.shape
    x0 = problem.noise(tries, seed, n, *row)  # (1)
    l0 = problem.noise(tries, seed + 1, n, classes)

    def loss(secrets: list[ClientSecrets], target: State, x: Tensor, logits: Tensor) -> Tensor:
        return squared_distance(problem.simulate(secrets, x, logits.softmax(1)), target)  # (2)

    split = x0[0, 0].numel()
    loss_and_grad = problem.captured_loss_and_grad(loss, (x0, l0))

    def value_and_grad(flat: Tensor) -> tuple[Tensor, Tensor]:
        x, logits = flat[:, :split].reshape(x0.shape), flat[:, split:].reshape(l0.shape)
        values, grads = loss_and_grad(x, logits)
        return values.flatten(), torch.cat([g.reshape(len(flat), -1) for g in grads], 1)

    start = torch.cat([t.reshape(problem.count * tries, -1) for t in (x0, l0)], 1)
    flat, value = minimise(value_and_grad, start, iterations, progress)  # (3)
    y = flat[:, split:].reshape(l0.shape).argmax(-1)
    return Recovery(flat[:, :split].reshape(x0.shape), y, value.reshape(problem.count, tries))
