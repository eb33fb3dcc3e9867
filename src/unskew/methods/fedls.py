"""FedAvg+LS (Szegedy et al. 2016): cross-entropy with smoothed labels.

    (1)  q = (1 - eps) onehot(y) + eps / C      of C classes, the true one included
    (2)  L = mean_i -sum_c q_c log softmax(z)_c = mean_i (1 - eps) CE(z, y) - eps mean_c log softmax(z)_c

Paper: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception Architecture for Computer Vision", CVPR 2016.
A baseline in the FedLMD paper, missing from its released code; equal to PyTorch's `label_smoothing`. The part replaces
FedAvg's loss and keeps its average.
Differs: nothing.
"""

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@part("ls")
class LabelSmoothing(Part):
    """Cross-entropy with smoothed labels."""

    eps: float = Field(0.1, ge=0, lt=1, description="share spread over all classes; 0.1 in FedLMD, there called mu")

    objective = True
    neutral = {"eps": 0.0}

    def loss(self, view: View) -> Tensor:
        true = F.cross_entropy(view.logits, view.y, reduction="none")
        spread = -view.logits.log_softmax(1).mean(1)
        return view.mean((1 - self.eps) * true + self.eps * spread)  # (1), (2)


method("fedls", "average", "ls")
