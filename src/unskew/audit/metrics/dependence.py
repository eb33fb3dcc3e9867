"""Distance correlation of inputs and features, with what it takes to read it.

The formulas are those of the training term, `methods/shared/distance`; here in double precision and without floors.
dCor of a batch is biased upwards, to nearly 1 where dimensions are many and rows few, even of independent data. So it
is printed beside its baseline, the values that remain when the features are dealt to other rows, and beside the
bias-corrected square, about 0 for independent rows.
Plain distances and the root, as FLea's code has it; its paper writes squared distances, which make it linear CKA.
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
    """Of inputs [n, ...] and features [n, ...]; at least 4 rows, as the bias-corrected square needs them."""
    if len(x) != len(f) or len(x) < 4:
        raise UserError(f"distance correlation: expected at least 4 rows, as many features, found {len(x)}, {len(f)}")
    x, f = x.flatten(1).double(), f.flatten(1).double()
    a, b, w = distances(x, 0.0), distances(f, 0.0), x.new_ones(len(x))
    A, B = (centred(d, w / w.sum()) for d in (a, b))
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(x), generator=generator).to(x.device) for _ in range(permutations)]
    bottom = ((A * A).mean().sqrt() * (B * B).mean().sqrt()).sqrt()
    tops = torch.stack([(A * B[order][:, order]).mean().clamp_min(0).sqrt() for order in orders])
    chance = (tops / bottom).nan_to_num()
    dcor = distance_correlation(x, f)
    beaten = int((chance >= dcor - 1e-12).sum())
    return Dependence(
        len(x), dcor, float(corrected_square(a, b, w)), float(chance.mean()), float(chance.quantile(0.95)),
        (1 + beaten) / (1 + permutations),
    )  # fmt: skip


def distance_correlation(x: Tensor, f: Tensor, floor: float = 0.0) -> float:
    """Of inputs [n, ...] and features [n, ...]. floor: that of `methods.shared.distance` gives FLea's printed value."""
    found = distance_corr.distance_correlation(x.double(), f.double(), x.new_ones(len(x)).double(), floor)
    return float(found.c.nan_to_num())  # rows that are all equal tell nothing
