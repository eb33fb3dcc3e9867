"""FedLC (Zhang et al. 2022): calibrate logits by label counts, so that rare classes get a wider margin.

    (1)  z'_c = z_c - tau n_kc^(-1/4)      n_kc = `absent` for a class without rows on the client
    (2)  L = mean_i CE(z', y)

Paper: Zhang, Li, Li, Xu, Wu, Ding, Wu, "Federated Learning with Label Distribution Skew via Logits Calibration",
ICML 2022.
Logits are calibrated only in training; evaluation uses the plain logits. At tau = 1 an absent class is lowered by 31.6
and gets almost no gradient; at tau = 0.1 it is lowered by only 3.2, and a smaller `absent` is needed to mask it. The
part replaces FedAvg's loss and keeps its average.
Differs: the softmax is over all classes, as in all public code; the paper's denominator leaves out the true class.
"""

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@part("lc")
class LogitsCalibration(Part):
    """Cross-entropy of calibrated logits."""

    tau: float = Field(1.0, ge=0, description="strength; 1 in FLea's scripts, 0.1 in FedDecorr's code")
    absent: float = Field(
        1e-6, gt=0, description="count in place of 0; 1e-6 in FLea's code, 0 (minus infinity) in FedDecorr's"
    )

    objective = True
    neutral = {"tau": 0.0}

    def loss(self, view: View) -> Tensor:
        n = view.counts.where(view.counts > 0, self.absent)
        z = view.logits - self.tau * n.pow(-0.25)  # (1)
        return view.mean(F.cross_entropy(z, view.y, reduction="none"))  # (2)


method("fedlc", "average", "lc")
