"""Distance correlation of inputs and features, with a baseline to compare it with.

The formulas are those of the training term, `methods/shared/distance_corr.py`, in double precision and without floors.
dCor of a batch is biased upwards, to nearly 1 for many dimensions and few rows, even for independent data. So it is
reported with its baseline, the values after permuting the features over the rows, and with the bias-corrected square,
which is about 0 for independent rows.
Plain distances and the square root, as in FLea's code; its paper writes squared distances, which make it linear CKA.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.methods.shared import distance_corr
from unskew.methods.shared.distance_corr import centred, corrected_square, distances


@dataclass(frozen=True)
class Dependence:
    """Distance correlation of n rows, and its values under random permutations."""

    rows: int
    dcor: float
    corrected: float  # bias-corrected dCor^2; may be negative
    baseline: float  # mean dCor over permutations
    baseline_high: float  # its 95th percentile
    p_value: float  # share of permutations with at least this dCor, counting the identity

    @property
    def summary(self) -> str:
        """One line for users."""
        return (
            f"dCor {self.dcor:.3f} of {self.rows} rows; permuted at random {self.baseline:.3f} (95 % below "
            f"{self.baseline_high:.3f}, p = {self.p_value:.3f}); bias-corrected dCor² {self.corrected:.3f}"
        )


def dependence(x: Tensor, f: Tensor, permutations: int = 200, seed: int = 0) -> Dependence:
    """Dependence of inputs [n, ...] and features [n, ...]; the bias-corrected square needs at least 4 rows."""
    if len(x) != len(f) or len(x) < 4:
        raise UserError(
            f"distance correlation: expected at least 4 rows with features for each, found {len(x)} and {len(f)}"
        )
    x, f = x.flatten(1).double(), f.flatten(1).double()
    a, b, w = distances(x, 0.0), distances(f, 0.0), x.new_ones(len(x))
    A, B = (centred(d, w / w.sum()) for d in (a, b))
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(x), generator=generator).to(x.device) for _ in range(permutations)]
    denominator = ((A * A).mean().sqrt() * (B * B).mean().sqrt()).sqrt()
    numerators = torch.stack([(A * B[order][:, order]).mean().clamp_min(0).sqrt() for order in orders])
    permuted = (numerators / denominator).nan_to_num()
    dcor = distance_correlation(x, f)
    at_least = int((permuted >= dcor - 1e-12).sum())
    return Dependence(
        len(x), dcor, float(corrected_square(a, b, w)), float(permuted.mean()), float(permuted.quantile(0.95)),
        (1 + at_least) / (1 + permutations),
    )  # fmt: skip


def distance_correlation(x: Tensor, f: Tensor, floor: float = 0.0) -> float:
    """dCor of inputs [n, ...] and features [n, ...]. floor: that of `distance_corr.py` gives FLea's printed value."""
    result = distance_corr.distance_correlation(x.double(), f.double(), x.new_ones(len(x)).double(), floor)
    return float(result.c.nan_to_num())  # 0 for rows that are all equal
