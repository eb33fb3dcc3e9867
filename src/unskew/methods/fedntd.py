"""FedNTD (Lee et al. 2022): distil the received model's predictions on every class but the true one.

    (1)  V = { c : c != y }      for a sample with label y
    (2)  p^T = softmax of the received model's logits / tau over V,   p^S = softmax of the local logits / tau over V
    (3)  L = L_FedAvg + beta tau^2 mean_i KL(p^T || p^S)

Paper: Lee, Jeong, Shin, Bae, Yun, "Preservation of the Global Knowledge by Not-True Distillation in Federated
Learning", NeurIPS 2022.
The mask depends on the sample, not on the client. With two classes only one is left, and the term is 0.
Differs: nothing; tau^2 is in the authors' code, and tau is from its configuration, not the default 3 of its class.
"""

from pydantic import Field
from torch import Tensor

from unskew.methods.shared.distillation_losses import masked_kl, other_classes
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@part("ntd")
class NotTrueDistillation(Part):
    """Distils the classes other than the label."""

    beta: float = Field(1.0, ge=0, description="strength; 1 in the authors' configuration and in FedLMD's")
    tau: float = Field(1.0, gt=0, description="temperature; 1 in the authors' configuration and in FedLMD's")

    neutral = {"beta": 0.0}

    def loss(self, view: View) -> Tensor:
        v = other_classes(view.y, view.logits)  # (1)
        kl = masked_kl(view.teacher.logits, view.logits, v, v, self.tau)  # (2)
        return self.beta * view.mean(kl)  # (3)


method("fedntd", "fedavg", "ntd")
