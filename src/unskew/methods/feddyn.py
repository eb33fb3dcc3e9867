"""FedDyn (Acar et al. 2021): change each client's objective so that its optimum agrees with the global one.

    (1)  L(w) = L_FedAvg(w) + alpha ( <d_k, w> + 1/2 ||w - w^t||^2 )   over the trained tensors, w^t and d_k constant
    (2)  d_k <- d_k + (w_k - w^t)                         of the clients in S; the sum of client k's updates so far
    (3)  s <- s + 1/K sum_{k in S} (w_k - w^t)            = mean of all K clients' d_k
    (4)  w^{t+1} = 1/|S| sum_{k in S} w_k + s

Paper: Acar, Zhao, Matas, Mattina, Whatmough, Saligrama, "Federated Learning Based on Dynamic Regularization",
ICLR 2021.
The paper keeps gradients: its g_k is -alpha d_k and its h is -alpha s, so that at a common fixed point the
clients' gradients add up to 0. d_k and s start at 0. The mean in (4) is uniform as in the paper, whatever
`weights` says. Running statistics take the plain mean.
Differs: alpha is the same for all clients; for clients of unequal size the authors' code divides it by their share.
"""

import torch
from pydantic import Field
from torch import Tensor

from unskew.base.tree import State, Value
from unskew.models.model import Model
from unskew.protocol.client_view import End, Newcomer
from unskew.protocol.method import Task
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Part
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.step_view import View


@part("dyn")
class DynamicRegularisation(Part):
    """Adds up each client's updates, as a linear term of its loss and as a correction of the mean model."""

    alpha: float = Field(0.01, gt=0, description="strength; 0.01 in the authors' script for CIFAR-10")

    owner = True
    sends = {
        "update": Artefact("weights", reduce="sum", update=True),
        "statistics": Artefact("statistics", reduce="mean"),
    }

    def client_init(self, model: Model, client: Newcomer) -> State:
        return _zeros(model)

    def server_init(self, model: Model, task: Task) -> State:
        return _zeros(model)

    def loss(self, view: View) -> Tensor:
        d, start = view.part_state, view.start
        terms = [(d[n] * w).sum() + (w - start[n]).square().sum() / 2 for n, w in view.parameters.items() if n in d]
        return self.alpha * torch.stack(terms).sum()  # (1)

    def up(self, end: End) -> tuple[dict[str, Value], State]:
        update, old = end.update, end.part_state
        rest = {name: t for name, t in end.final.items() if name not in end.parameters}
        sent: dict[str, Value] = {"update": update}
        if rest:
            sent["statistics"] = rest
        return sent, {name: old[name] + update[name] for name in old}  # (2)

    def merge(self, server: Server, messages: Messages) -> Server:
        total, clients = messages.sum("update"), len(messages.clients)
        s = {n: old + total[n] / server.task.clients for n, old in server.part_state.items()}  # (3)
        new = {n: server.model[n] + total[n] / clients + s[n] for n in s}  # (4)
        rest = messages.mean("statistics") if "statistics" in messages else {}
        return server.replace(model=server.model | new | rest, part_state=s)


def _zeros(model: Model) -> State:
    return {name: model.initial[name].new_zeros(model.initial[name].shape) for name in model.shared}


method("feddyn", "fedavg", "dyn")
