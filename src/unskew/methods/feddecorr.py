"""FedDecorr (Shi et al. 2023): decorrelate the representation to prevent its collapse to few dimensions.

    (1)  h = (Z - mean) / sqrt(var + 1e-8)     of Z [b, d], column by column, var with b - 1
    (2)  R = 1/b mean_{i != j} ( sum_n h_ni h_nj )^2 = ( ||h h^T||^2 - sum_i (sum_n h_ni^2)^2 ) / (b d (d - 1))
    (3)  L = L_FedAvg + beta R

Paper: Shi, Liang, Zhang, Tan, Bai, "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous
Federated Learning", ICLR 2023.
Z is the input of the classifier; gradients flow through mean and var. The second form of (2) needs b x b numbers
instead of d x d. R = 0 for a single sample, and a constant column adds 0.
Differs: (2) follows the authors' code, about b times the paper's 1/d^2 ||K||^2 of the correlation matrix K; beta is the
code's, too. Filler rows of a partial batch do not count.
"""

from pydantic import Field
from torch import Tensor

from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


def decorrelation(z: Tensor, w: Tensor) -> Tensor:
    """R of representations [b, d]; w [b] is 1 for real rows and 0 for filler."""
    n, d, w = w.sum(), z.shape[1], w[:, None]
    # Not a matrix product: in TF32 the mean of a single row would differ from that row, and h would be noise of size 1.
    c = (z - (w * z).sum(0) / n) * w
    h = c / (c.square().sum(0) / (n - 1).clamp_min(1) + 1e-8).sqrt()  # (1)
    total, diagonal = (h @ h.T).square().sum(), h.square().sum(0).square().sum()
    return (total - diagonal) / (max(d * (d - 1), 1) * n)  # (2)


@part("decorr")
class Decorrelation(Part):
    """Penalises squared correlations between the dimensions of the representation."""

    beta: float = Field(0.1, ge=0, description="strength; 0.1 in the paper, in the authors' code and in FLea's")

    neutral = {"beta": 0.0}

    def loss(self, view: View) -> Tensor:
        return self.beta * decorrelation(view.at(view.feature).flatten(1), view.w)  # (3)


method("feddecorr", "fedavg", "decorr")
