"""Distance correlation of a batch, as a training term and for the audit, with two values that help to interpret it.

    a_ij = |x_i - x_j|,  A = a - row means - column means + mean;  B likewise of f;  v(x, f) = mean_ij A_ij B_ij
    c = sqrt( v(x, f) / sqrt(v(x, x) v(f, f)) )

c of a batch is biased upwards: for few rows of high dimension it is nearly 1 even if they are independent. So it is
logged together with the value expected by chance and the bias-corrected square (Székely and Rizzo 2013). Chance uses
the mean of v over all permutations of the features, in closed form: E v(x, f_pi) = tr(A) tr(B) / (n^2 (n - 1)), because
A and B sum to 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# As in FLea's code: minimum of squared distances, whose root has no gradient at 0; added to every v and root.
FLOOR = 1e-7


class DistanceCorrelation(NamedTuple):
    """The distance correlation c of a batch, and two values without gradient to compare it with."""

    c: Tensor
    chance: Tensor  # c expected by chance
    corrected: Tensor  # bias-corrected c^2; 0 for fewer than four rows


def distance_correlation(x: Tensor, f: Tensor, w: Tensor, floor: float = FLOOR) -> DistanceCorrelation:
    """Distance correlation of inputs [b, ...] and features [b, ...]; w [b] is 1 for real rows, 0 for filler.

    All values are 0 for a single row.
    """
    n, p = w.sum(), w / w.sum()
    a, b = distances(x, floor), distances(f, floor)
    A, B = centred(a, p), centred(b, p)
    # v is never negative in exact arithmetic; rounding can make it so.
    xf, xx, ff = ((p[:, None] * p * P * Q).sum().clamp_min(0) for P, Q in ((A, B), (A, A), (B, B)))
    denominator = (((xx + floor).sqrt() + floor) * ((ff + floor).sqrt() + floor)).sqrt()
    has_pairs = (n > 1).to(w.dtype)
    with torch.no_grad():
        expected = (w * A.diagonal()).sum() * (w * B.diagonal()).sum() / (n**2 * (n - 1).clamp_min(1))
        chance = has_pairs * (expected + floor).sqrt() / denominator
        corrected = corrected_square(a, b, w)
    return DistanceCorrelation(has_pairs * (xf + floor).sqrt() / denominator, chance, corrected)


def distances(x: Tensor, floor: float) -> Tensor:
    """[b, b] Euclidean distances by a matrix product, because b x b x d differences would not fit in memory.

    Subtracting the mean first keeps the loss of digits small.
    """
    x = x.flatten(1)
    x = x - x.detach().mean(0)
    product = x @ x.T
    square = product.diagonal()
    return (square[:, None] + square - 2 * product).clamp_min(floor).sqrt()


def centred(d: Tensor, p: Tensor) -> Tensor:
    """[b, b] without row and column means; p [b] are the rows' weights, which sum to 1."""
    # Sums, not matrix products: in TF32 rows would no longer sum to 0.
    r = (d * p).sum(1)
    return d - r[:, None] - r + (r * p).sum()


def corrected_square(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Bias-corrected squared distance correlation from distances [b, b]; w [b] is 1 for real rows, 0 for filler.

    It is about 0 for independent rows and may be negative.
    """
    n = w.sum()
    pairs = w[:, None] * w * (1 - torch.diag(torch.ones_like(w)))
    A, B = (_u_centred(d * pairs, n) * pairs for d in (a, b))
    denominator = ((A * A).sum() * (B * B).sum()).sqrt()
    return (n >= 4).to(w.dtype) * (A * B).sum() / denominator.clamp_min(FLOOR**2)


def _u_centred(d: Tensor, n: Tensor) -> Tensor:
    r = d.sum(1) / (n - 2).clamp_min(1)
    return d - r[:, None] - r + d.sum() / ((n - 1) * (n - 2)).clamp_min(1)
