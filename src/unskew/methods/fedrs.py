"""FedRS (Li and Zhan 2021): scale down the logits of absent classes, so that training pushes them away less.

    (1)  s_c = alpha + (1 - alpha) r_c,   r_c = 1 if n_kc > 0 else 0      (soft: r_c = n_kc / max_c n_kc)
    (2)  L = mean_i CE(s * z, y)

Paper: Li, Zhan, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data", KDD 2021.
n_kc counts all rows of the client, not those of a batch. Logits are scaled only in training; evaluation uses the plain
logits. The part replaces FedAvg's loss and keeps its average.
Differs: `soft` follows the authors' code, which scales logits without bias and clips gradients at norm 100
(`local.clip`); here the model's logits are scaled, with their bias.
"""

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@part("rs")
class RestrictedSoftmax(Part):
    """Cross-entropy of logits that are scaled down for classes without rows on the client."""

    alpha: float = Field(0.5, ge=0, le=1, description="scale of an absent class; 0.5 in FedDecorr's code, 1 is FedAvg")
    soft: bool = Field(False, description="scale by the number of rows of a class, as in the authors' code")

    objective = True
    neutral = {"alpha": 1.0}

    def loss(self, view: View) -> Tensor:
        n, z = view.counts, view.logits
        r = n / n.amax() if self.soft else (n > 0).to(z.dtype)
        s = self.alpha + (1 - self.alpha) * r  # (1)
        return view.mean(F.cross_entropy(s * z, view.y, reduction="none"))  # (2)


method("fedrs", "average", "rs")
