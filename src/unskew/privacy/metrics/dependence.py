"""Distance correlation of inputs and features, with what it takes to read it.

(1) a_ij = |x_i - x_j|, A = a - row means - column means + mean; B likewise of f; v(x, f) = mean of A * B
(2) dCor = sqrt(v(x, f) / sqrt(v(x, x) v(f, f)))
(3) the same with U-centred matrices and a zero diagonal: the bias-corrected square, about 0 for independent rows

dCor of a batch is biased upwards, to nearly 1 where dimensions are many and rows few, even of independent data. So it
is printed beside its baseline, the values that remain when the features are dealt to other rows, and beside (3).
Plain distances and the root, as FLea's code has it; its paper writes squared distances, which make it linear CKA.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.errors import UserError

FLEA_FLOOR = 1e-7  # under squared distances and added to every v, in FLea's released code


@dataclass(frozen=True)
class Dependence:
    """Distance correlation of n rows and what chance gives."""

    rows: int
    dcor: float
    corrected: float  # bias-corrected dCor^2; may be negative
    baseline: float  # mean dCor over permutations
    baseline_high: float  # its 95th percentile
    p_value: float  # share of permutations with at least this dCor, this one counted

    @property
    def words(self) -> str:
        """All of it in a line."""
        return (
            f"dCor {self.dcor:.3f} of {self.rows} rows; dealt at random {self.baseline:.3f} (95 %: below "
            f"{self.baseline_high:.3f}, p {self.p_value:.3f}); bias-corrected dCor² {self.corrected:.3f}"
        )


def dependence(x: Tensor, f: Tensor, permutations: int = 200, seed: int = 0) -> Dependence:
    """Of inputs [n, ...] and features [n, ...]; at least 4 rows, as (3) needs them."""
    if len(x) != len(f) or len(x) < 4:
        raise UserError(f"distance correlation: expected at least 4 rows, as many features, found {len(x)}, {len(f)}")
    a, b = _distances(x, 0.0), _distances(f, 0.0)
    A, B = _centred(a), _centred(b)
    bottom = _v(A, A).sqrt() * _v(B, B).sqrt()
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(x), generator=generator).to(x.device) for _ in range(permutations)]
    chance = torch.stack([_v(A, B[order][:, order]) for order in orders])
    chance = _root(chance, bottom)
    dcor = _root(_v(A, B), bottom)
    beaten = int((chance >= dcor - 1e-12).sum())
    return Dependence(
        len(x), float(dcor), _corrected(a, b), float(chance.mean()), float(chance.quantile(0.95)),
        (1 + beaten) / (1 + permutations),
    )  # fmt: skip


def distance_correlation(x: Tensor, f: Tensor, floor: float = 0.0) -> float:
    """(2) of inputs [n, ...] and features [n, ...]. floor: FLEA_FLOOR gives what FLea's code would print."""
    A, B = _centred(_distances(x, floor)), _centred(_distances(f, floor))
    top, left, right = ((_v(*pair) + floor).clamp_min(0).sqrt() for pair in ((A, B), (A, A), (B, B)))
    bottom = ((left + floor) * (right + floor)).sqrt()
    return float(top / bottom) if bottom > 0 else 0.0  # rows that are all equal tell nothing


def _distances(x: Tensor, floor: float) -> Tensor:
    flat = x.flatten(1).double()
    # Not by the product form, which loses the small distances.
    plain = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    return plain.clamp_min(floor**0.5)


def _centred(a: Tensor) -> Tensor:
    return a - a.mean(0, keepdim=True) - a.mean(1, keepdim=True) + a.mean()


def _v(A: Tensor, B: Tensor) -> Tensor:
    return (A * B).mean()


def _root(top: Tensor, bottom: Tensor) -> Tensor:
    return (top.clamp_min(0) / bottom).sqrt() if bottom > 0 else torch.zeros_like(top)


def _corrected(a: Tensor, b: Tensor) -> float:
    """(3), after Székely and Rizzo 2013."""
    A, B = _u_centred(a), _u_centred(b)
    bottom = ((A * A).sum() * (B * B).sum()).sqrt()
    return float((A * B).sum() / bottom) if bottom > 0 else 0.0


def _u_centred(a: Tensor) -> Tensor:
    n = len(a)
    total = a.sum() / ((n - 1) * (n - 2))
    out = a - a.sum(0, keepdim=True) / (n - 2) - a.sum(1, keepdim=True) / (n - 2) + total
    return out.fill_diagonal_(0.0)
