"""IG, "inverting gradients" (Geiping et al. 2020): the direction of the gradient, and smooth images.

    (1)  C = 1 - <G', G*> / (||G'|| ||G*||)                      inner product and norms over all tensors together
    (2)  TV(x) = mean |x[.., j] - x[.., j+1]| + mean |x[i, ..] - x[i+1, ..]|     of the normalised rows
    (3)  x <- box( Adam( x, sign grad (C + tv TV) ) ),   x ~ N(0, 1) at first, learning rate 0.1
    (4)  the learning rate times 0.1 at 3/8, 5/8 and 7/8 of the iterations
    (5)  of several tries the one with the smallest C, without TV

Paper: Geiping, Bauermeister, Droege, Moeller, "Inverting Gradients: How easy is it to break privacy in federated
learning?", NeurIPS 2020.
`box` clamps to the range of pixels. (1) ignores the gradient's length, so clipping a message's norm is no defence.
Labels are known or inferred. A failed attack proves nothing.
Differs: the loss is the method's own, and for several local steps G' is the mean of `unrolled_training.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.audits.attacks.label_inference import known_or_inferred_labels
from unskew.audits.problem import Problem, Progress, Recovery, no_progress
from unskew.audits.unrolled_training import ClientSecrets
from unskew.base.tree import State

TV = 1e-4  # default of the authors' repository
RATE = 0.1
TINY = 1e-30  # added under square roots, since a gradient of zeros has no direction


def cosine_distance(guess: State, target: State) -> Tensor:
    """(1)."""
    pairs = [(guess[name].flatten(), t.flatten()) for name, t in target.items()]
    inner, a, b = (torch.stack(list(terms)).sum() for terms in zip(*((g @ t, g @ g, t @ t) for g, t in pairs)))
    return 1 - inner / ((a + TINY).sqrt() * (b + TINY).sqrt())


def total_variation(x: Tensor) -> Tensor:
    """(2) of rows [n, channels, height, width]; 0 for rows that are not images."""
    if x.ndim != 4:
        return x.new_zeros(())
    return x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()


def ig(
    problem: Problem, tries: int, iterations: int, seed: int, progress: Progress = no_progress, tv: float = TV
) -> Recovery:
    """Recover rows for known or inferred labels."""
    x = problem.noise(tries, seed, problem.n, *problem.shape)
    y = known_or_inferred_labels(problem)[:, None].expand(-1, tries, -1)

    def cost(secrets: list[ClientSecrets], target: State, x: Tensor, y: Tensor) -> Tensor:
        return cosine_distance(problem.simulate(secrets, x, y), target) + tv * total_variation(x)

    def matching(secrets: list[ClientSecrets], target: State, x: Tensor, y: Tensor) -> Tensor:
        return cosine_distance(problem.simulate(secrets, x, y), target)

    first, second = torch.zeros_like(x), torch.zeros_like(x)
    loss_and_grad = problem.captured_loss_and_grad(cost, (x,), (y,))
    for step in range(iterations):
        _, (grad,) = loss_and_grad(x)
        x, first, second = _adam(x, grad.sign(), first, second, step, _rate(step, iterations))  # (3)
        if problem.pixel_range is not None:
            x = torch.minimum(torch.maximum(x, problem.pixel_range.low), problem.pixel_range.high)
        progress(step + 1, iterations)
    loss, _ = problem.loss_and_grad(matching, (x,), (y,))  # (5)
    return Recovery(x, y, loss)


def _rate(step: int, iterations: int) -> float:
    return RATE * 0.1 ** sum(step >= iterations * eighths / 8 for eighths in (3, 5, 7))  # (4)


def _adam(x: Tensor, g: Tensor, first: Tensor, second: Tensor, step: int, lr: float) -> tuple[Tensor, Tensor, Tensor]:
    first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
    a, b = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
    return x - lr * a / (b.sqrt() + 1e-8), first, second
