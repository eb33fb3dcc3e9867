"""FedLMD (Lu et al. 2023): learn majority labels locally; distil minority labels from the received model.

    (1)  M_k = { c : n_kc > n_k / C }        the majority labels of client k, of C classes
    (2)  U = { c : c not in M_k, c != y },   V = { c : c != y }     for a sample with label y
    (3)  p^T = softmax of the received model's logits / tau over U,   p^S = softmax of the local logits / tau over V
    (4)  L = L_FedAvg + beta tau^2 mean_i sum_{c in U} p^T_c (log p^T_c - log p^S_c)    0 for empty U

Paper: Lu, Li, Bao, Wang, Qian, Ge, "Federated Learning with Label-Masking Distillation", ACM Multimedia 2023.
Majority labels other than y stay in the denominator of p^S, so their logits are pushed down; without majority labels
the method is FedNTD. With `switch` R, rounds 1 to R are FedLMD-Tf with the same beta and tau; the teacher is used from
round R + 1 on. A client's label counts are not sent.
Differs: (1) follows the authors' code, the paper prints n_ky >= n_k / n_ky; U leaves out y too, as the authors
confirmed, while the paper masks only M_k, which makes the divergence infinite; tau^2 is in the code and not in the
paper. A sample with empty U adds 0, while the code, which subtracts 1000 from masked logits, lets masked classes back
in. Clients are averaged by rows as in the code; the paper's uniform mean is `weights: uniform`.
"""

from pydantic import Field
from torch import Tensor

from unskew.methods.fedlmd_tf import TeacherFreeMasking
from unskew.methods.shared.distillation_losses import majority_classes, masked_kl, other_classes
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.step_view import View
from unskew.protocol.work import Work


@part("lmd")
class LabelMaskingDistillation(Part):
    """Distils the labels of which a client has few rows."""

    beta: float = Field(1.0, ge=0, description="strength; 1 in the authors' code, searched per setting in the paper")
    tau: float = Field(1.0, gt=0, description="temperature; 1 in the authors' code, searched per setting in the paper")
    switch: int = Field(
        0, ge=0, description="number R of first rounds without teacher; 0 is FedLMD, the paper's figure 8 varies R"
    )

    neutral = {"beta": 0.0}

    def at_round(self, round: int, work: Work) -> tuple[Part, Work]:
        return (TeacherFreeMasking(self.beta, self.tau) if round <= self.switch else self), work

    def loss(self, view: View) -> Tensor:
        v = other_classes(view.y, view.logits)  # (2)
        u = v & ~majority_classes(view.counts)  # (1), (2)
        kl = masked_kl(view.teacher.logits, view.logits, u, v, self.tau)  # (3)
        return self.beta * view.mean(kl)  # (4)


method("fedlmd", "fedavg", "lmd")
