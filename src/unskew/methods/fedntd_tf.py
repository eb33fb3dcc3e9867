"""FedNTD-Tf (Lu et al. 2023): FedNTD with a uniform teacher, which needs no forward pass.

    (1)  V = { c : c != y }      for a sample with label y, of C classes
    (2)  p^T = 1 / (C - 1) on V,   p^S = softmax of the local logits / tau over V
    (3)  L = L_FedAvg + beta tau^2 mean_i KL(p^T || p^S)

Paper: Lu, Li, Bao, Wang, Qian, Ge, "Federated Learning with Label-Masking Distillation", ACM Multimedia 2023.
A baseline in the FedLMD paper, defined there in one sentence; it is FedLMD-Tf without majority labels.
Differs: nothing known; no code was released, and beta and tau are not reported.
"""

import torch
from pydantic import Field
from torch import Tensor

from unskew.base.tree import State
from unskew.methods.shared.distillation_losses import uniform_kl, uniform_teacher
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@part("ntd-tf")
class TeacherFreeNotTrue(Part):
    """Pulls the classes other than the label towards equal probabilities."""

    beta: float = Field(1.0, ge=0, description="strength; own choice, FedNTD's value, not reported in the paper")
    tau: float = Field(1.0, gt=0, description="temperature; own choice, FedNTD's value, not reported in the paper")

    neutral = {"beta": 0.0}

    def label_stats(self, counts: Tensor) -> State:
        all_classes = torch.ones_like(counts, dtype=torch.bool)
        return uniform_teacher(all_classes, self.beta * self.tau**2, counts.dtype)  # (1), p^T of (2)

    def loss(self, view: View) -> Tensor:
        return view.mean(uniform_kl(view.label_stats(self), view.logits, view.y, self.tau))  # p^S of (2), (3)


method("fedntd-tf", "fedavg", "ntd-tf")
