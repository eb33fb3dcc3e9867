"""FedLMD-Tf (Lu et al. 2023): FedLMD with a uniform teacher, which needs no forward pass.

    (1)  M_k = { c : n_kc > n_k / C }        the majority labels of client k, of C classes
    (2)  U = { c : c not in M_k, c != y },   V = { c : c != y }     for a sample with label y
    (3)  p^T = 1 / |U| on U,   p^S = softmax of the local logits / tau over V
    (4)  L = L_FedAvg + beta tau^2 mean_i ( -log |U| - 1/|U| sum_{c in U} log p^S_c )    0 for empty U

Paper: Lu, Li, Bao, Wang, Qian, Ge, "Federated Learning with Label-Masking Distillation", ACM Multimedia 2023.
(4) is the divergence of FedLMD with a teacher that depends only on the client and the label, so it is a table, computed
once per round. The constant -log |U| has no gradient and makes the values comparable with FedLMD's.
Differs: the paper prints 1 / (C - |M_k|), which sums to 1 only if y is a majority label; the released code divides by
C - batch - 1, a negative number, and cannot run. (1), y outside U, and tau^2 are as in FedLMD.
"""

from pydantic import Field
from torch import Tensor

from unskew.base.tree import State
from unskew.methods.shared.distillation_losses import majority_classes, uniform_kl, uniform_teacher
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@part("lmd-tf")
class TeacherFreeMasking(Part):
    """Pulls the labels of which a client has few rows towards equal probabilities."""

    beta: float = Field(
        1.0, ge=0, description="strength; 1 in the authors' code, large values hurt in the paper's figure 9"
    )
    tau: float = Field(
        1.0, gt=0, description="temperature; 1 in the authors' code, larger helps in the paper's figure 9"
    )

    neutral = {"beta": 0.0}

    def label_stats(self, counts: Tensor) -> State:
        return uniform_teacher(
            ~majority_classes(counts), self.beta * self.tau**2, counts.dtype
        )  # (1), U of (2), p^T of (3)

    def loss(self, view: View) -> Tensor:
        return view.mean(uniform_kl(view.label_stats(self), view.logits, view.y, self.tau))  # V of (2), p^S of (3), (4)


method("fedlmd-tf", "fedavg", "lmd-tf")
