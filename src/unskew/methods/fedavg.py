"""FedAvg (McMahan et al. 2017): train on cross-entropy, average by number of rows.

    (1)  L(w) = mean_i CE(f_w(x_i), y_i)
    (2)  w^{t+1} = sum_k p_k w_k,  p_k = n_k / sum_j n_j   (`weights: uniform` makes p_k = 1/m)

Paper: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017.
Running statistics are averaged like weights; integer batch counters take the first client's value.
Differs: nothing.
"""

from torch import Tensor
from torch.nn import functional as F

from unskew.base.tree import State, Value
from unskew.protocol.client_view import End
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Part
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.step_view import View


@part("ce")
class CrossEntropy(Part):
    """Cross-entropy on the client's own rows."""

    objective = True

    def loss(self, view: View) -> Tensor:
        return view.mean(F.cross_entropy(view.logits, view.y, reduction="none"))  # (1)


@part("average")
class Average(Part):
    """The weighted mean of the clients' models."""

    owner = True
    sends = {"weights": Artefact("weights", reduce="mean")}

    def up(self, end: End) -> tuple[dict[str, Value], State]:
        return {"weights": end.final}, end.part_state

    def merge(self, server: Server, messages: Messages) -> Server:
        return server.replace(model=messages.mean("weights"))  # (2)


method("fedavg", "ce", "average")
