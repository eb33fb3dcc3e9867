"""FedAvg+KD (Hinton et al. 2015): distil the received model's predictions on all classes.

    (1)  p^T = softmax of the received model's logits / tau,   p^S = softmax of the local logits / tau
    (2)  L = L_FedAvg + beta tau^2 mean_i KL(p^T || p^S)

Paper: Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", NeurIPS workshop 2015.
A baseline in the FedLMD paper, missing from its released code. Cross-entropy keeps weight 1, not 1 - beta.
Differs: the teacher is the received model, not a larger one.
"""

import torch
from pydantic import Field
from torch import Tensor

from unskew.methods.shared.distillation_losses import masked_kl
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@part("kd")
class Distillation(Part):
    """Distillation of all classes."""

    beta: float = Field(1.0, ge=0, description="strength; own choice, not reported in FedLMD")
    tau: float = Field(1.0, gt=0, description="temperature; own choice, not reported in FedLMD")

    neutral = {"beta": 0.0}

    def loss(self, view: View) -> Tensor:
        all_classes = torch.ones_like(view.logits, dtype=torch.bool)
        kl = masked_kl(view.teacher.logits, view.logits, all_classes, all_classes, self.tau)  # (1)
        return self.beta * view.mean(kl)  # (2)


method("fedavg-kd", "fedavg", "kd")
