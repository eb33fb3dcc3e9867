"""MOON (Li et al. 2021): pull the representation towards the received model's and away from the previous local one.

    (1)  s_g = cos(z, z_g) / tau,  s_p = cos(z, z_p) / tau
    (2)  l_con = -log( e^{s_g} / (e^{s_g} + e^{s_p}) )
    (3)  L = L_FedAvg + mu mean_i l_con

Paper: Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021.
z is the local representation, z_g the received model's, and z_p that of the model this client trained last (before its
first round: the initial model w^0, so round 1 is FedAvg).
Differs: no projection head; the representation is the input of the classifier, as in the code FedLMD builds on.
"""

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from unskew.base.tree import State, Value
from unskew.models.model import Model
from unskew.protocol.client_view import End, Newcomer
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


def contrast(z: Tensor, near: Tensor, far: Tensor, tau: Tensor | float) -> Tensor:
    """Contrastive loss per sample [b], for representations [b, d]."""
    s_g = F.cosine_similarity(z.flatten(1), near.flatten(1)) / tau  # (1)
    s_p = F.cosine_similarity(z.flatten(1), far.flatten(1)) / tau
    return F.softplus(s_p - s_g)  # (2)


@part("moon")
class Moon(Part):
    """Model-contrastive loss."""

    mu: float = Field(0.1, ge=0, description="strength; 0.1 in FedLMD's code, 5 on CIFAR-10 in the original")
    tau: float = Field(0.5, gt=0, description="temperature of the cosine; 0.5 in the original and in FedLMD's code")

    neutral = {"mu": 0.0}

    def client_init(self, model: Model, client: Newcomer) -> State:
        return model.initial

    def loss(self, view: View) -> Tensor:
        cut = view.feature
        l_con = contrast(view.at(cut), view.teacher.at(cut), view.frozen(view.part_state).at(cut), self.tau)
        return self.mu * view.mean(l_con)  # (3)

    def up(self, end: End) -> tuple[dict[str, Value], State]:
        return {}, end.final


method("moon", "fedavg", "moon")
