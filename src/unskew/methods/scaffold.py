"""SCAFFOLD (Karimireddy et al. 2020), option II: correct client drift with control variates.

    (1)  g <- grad L - c_k + c                       at every step, as the gradient of <c - c_k, w>
    (2)  c_k+ = c_k - c + (w^t - w_k) / (eta a_k)    eta of this round; a_k = effective steps (momentum counted)
    (3)  dc_k = c_k+ - c_k
    (4)  c <- c + 1/K sum_{k in S} dc_k

Paper: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", ICML 2020.
Variates cover the trained tensors and start at 0, so round 1 is FedAvg and c = mean_k c_k always holds.
Differs: the model is averaged by rows with server learning rate 1 (the original takes the uniform mean, which is
`weights: uniform`); a_k replaces the number of steps when momentum is used, as in the code FedLMD builds on.
"""

import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.tree import State, Value
from unskew.models.model import Model
from unskew.protocol.client_view import End, Newcomer
from unskew.protocol.method import Method, Task
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Part
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.step_view import View
from unskew.protocol.work import Work


@part("scaffold")
class Scaffold(Part):
    """Corrects every local gradient by control variates."""

    sends = {"dc": Artefact("control", reduce="sum")}
    broadcasts = {"c": Artefact("control")}

    def build(self, method: Method, work: Work) -> "Scaffold":
        if work.optimiser != "sgd":
            raise UserError(
                f"scaffold: expected local.optimiser: sgd, found {work.optimiser}; the control variate divides the "
                "update by the learning rate, which is right only for SGD"
            )
        return self

    def client_init(self, model: Model, client: Newcomer) -> State:
        return _zeros(model)

    def server_init(self, model: Model, task: Task) -> State:
        return _zeros(model)

    def down(self, server: Server) -> dict[str, Value]:
        return {"c": server.part_state}

    def loss(self, view: View) -> Tensor:
        c, own = view.received["c"], view.part_state
        terms = [((c[n] - own[n]) * w).sum() for n, w in view.parameters.items() if n in c]
        return torch.stack(terms).sum()  # (1)

    def up(self, end: End) -> tuple[dict[str, Value], State]:
        scale = end.lr * end.effective_steps
        c, old = end.received["c"], end.part_state
        new = {n: old[n] - c[n] - d / scale for n, d in end.update.items()}  # (2), update = w_k - w^t
        return {"dc": {n: new[n] - old[n] for n in new}}, new  # (3)

    def merge(self, server: Server, messages: Messages) -> Server:
        total = messages.sum("dc")
        new = {n: c + total[n] / server.task.clients for n, c in server.part_state.items()}  # (4)
        return server.replace(part_state=new)


def _zeros(model: Model) -> State:
    return {name: model.initial[name].new_zeros(model.initial[name].shape) for name in model.shared}


method("scaffold", "fedavg", "scaffold")
