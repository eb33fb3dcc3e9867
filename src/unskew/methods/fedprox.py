"""FedProx (Li et al. 2020): keep the local model close to the received one.

    (1)  L(w) = L_FedAvg(w) + mu/2 ||w - w^t||^2   over the trained tensors, w^t constant

Paper: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020.
Buffers such as running statistics are not in the term; they are averaged as in FedAvg.
Differs: every client does all its local steps; the original lets stragglers stop early.
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View
from unskew.protocol.work import Work


@part("prox")
class Proximal(Part):
    """Penalises the squared distance to the received model."""

    mu: float = Field(0.01, ge=0, description="strength; FLea searches 0.1, 0.01, 0.001, FedLMD's code uses 1")

    neutral = {"mu": 0.0}

    def at_round(self, round: int, work: Work) -> tuple["Proximal", Work]:
        return self, replace(work, prox_strength=self.mu)  # for parts that use effective steps, such as FedNova

    def loss(self, view: View) -> Tensor:
        square = [(w - view.start[name]).pow(2).sum() for name, w in view.parameters.items()]
        return self.mu / 2 * torch.stack(square).sum()  # (1)


method("fedprox", "fedavg", "prox")
