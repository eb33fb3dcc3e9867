"""Distance correlation of a batch, as a training term and for the audit, with what it takes to read it.

    a_ij = |x_i - x_j|,  A = a - row means - column means + mean;  B likewise of f;  v(x, f) = mean_ij A_ij B_ij
    c = sqrt( v(x, f) / sqrt(v(x, x) v(f, f)) )

c of a batch is biased upwards, to nearly 1 for few rows of many numbers even if they are independent. So it is logged
beside the value that chance gives and beside the bias-corrected square (Székely and Rizzo 2013). Chance is the mean of
v over all permutations of the features, in closed form: E v(x, f_pi) = tr(A) tr(B) / (n^2 (n - 1)); A and B sum to 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor

FLOOR = (
    1e-7  # FLea's code: under squared distances, whose root has no gradient at 0, and added to every v and root of it
)


class DistanceCorrelation(NamedTuple):
    """c with its gradient; without one, c by chance and the bias-corrected c^2, 0 for fewer than four rows."""

    c: Tensor
    chance: Tensor
    corrected: Tensor


def distance_correlation(x: Tensor, f: Tensor, w: Tensor, floor: float = FLOOR) -> DistanceCorrelation:
    """Of inputs [b, ...] and features [b, ...] with weights [b], 1 or 0; 0 for a single row."""
    n, p = w.sum(), w / w.sum()
    a, b = distances(x, floor), distances(f, floor)
    A, B = centred(a, p), centred(b, p)
    # A v is never negative; rounding can make it so.
    xf, xx, ff = ((p[:, None] * p * P * Q).sum().clamp_min(0) for P, Q in ((A, B), (A, A), (B, B)))
    below = (((xx + floor).sqrt() + floor) * ((ff + floor).sqrt() + floor)).sqrt()
    several = (n > 1).to(w.dtype)
    with torch.no_grad():
        expected = (w * A.diagonal()).sum() * (w * B.diagonal()).sum() / (n**2 * (n - 1).clamp_min(1))
        chance = several * (expected + floor).sqrt() / below
        corrected = corrected_square(a, b, w)
    return DistanceCorrelation(several * (xf + floor).sqrt() / below, chance, corrected)


def distances(x: Tensor, floor: float) -> Tensor:
    """[b, b] Euclidean, by one product: b x b x d differences would not fit. Around the mean it loses few digits."""
    x = x.flatten(1)
    x = x - x.detach().mean(0)
    product = x @ x.T
    square = product.diagonal()
    return (square[:, None] + square - 2 * product).clamp_min(floor).sqrt()


def centred(d: Tensor, p: Tensor) -> Tensor:
    """[b, b] without row and column means; p [b]: what each row weighs, 1 in all."""
    # Sums, not matrix products: in TF32 rows would no longer add up to 0.
    r = (d * p).sum(1)
    return d - r[:, None] - r + (r * p).sum()


def corrected_square(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Of distances [b, b] between rows with weights [b], 1 or 0: about 0 for independent rows; may be negative."""
    n = w.sum()
    pairs = w[:, None] * w * (1 - torch.diag(torch.ones_like(w)))
    A, B = (_u_centred(d * pairs, n) * pairs for d in (a, b))
    below = ((A * A).sum() * (B * B).sum()).sqrt()
    return (n >= 4).to(w.dtype) * (A * B).sum() / below.clamp_min(FLOOR**2)


def _u_centred(d: Tensor, n: Tensor) -> Tensor:
    r = d.sum(1) / (n - 2).clamp_min(1)
    return d - r[:, None] - r + d.sum() / ((n - 1) * (n - 2)).clamp_min(1)
