"""FedCurv (Shoham et al. 2019): penalise changes in directions in which the other clients' losses curve strongly.

    (1)  u_k = mean over mini-batches of (gradient of the batch's mean cross-entropy at w_k)^2,  v_k = u_k w_k
    (2)  U = sum_j u_j,  V = sum_j v_j     over the latest of every client so far; a client sends the change of its own
    (3)  P = U - u_k,  Q = V - v_k         the other clients' sums, from a broadcast that is the same for all
    (4)  L = L_FedAvg + lambda ( w^T (P w) - 2 Q^T w )     = lambda sum_{j != k} u_j (w - w_j)^2 up to a constant

Paper: Shoham, Avidor, Keren, Israel, Benditkis, Mor-Yosef, Zeitak, "Overcoming Forgetting in Federated Learning on
Non-IID Data", NeurIPS 2019 workshop on federated learning.
U and V start at 0, so round 1 is FedAvg. (1) uses at most `samples` rows, in batches of the local batch size.
Differs: (1) uses rows as they are stored, without augmentation, and eval mode; the code FedLMD builds on augments them,
and subtracts u_k in place from the sums that later clients of the round still need.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from unskew.base.tree import PartState, State, Value
from unskew.models.model import Model
from unskew.protocol.client_view import Client, Newcomer
from unskew.protocol.method import Task
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Exchange, Part, Sizes
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.step_view import View


@part("curv")
class Curvature(Part):
    """A quadratic penalty weighted by the other clients' curvature."""

    lam: float = Field(1.0, ge=0, description="strength lambda; 1 in the code FedLMD builds on")
    samples: int = Field(550, ge=1, description="rows of the Fisher pass; 11 batches of 50 in that code")

    neutral = {"lam": 0.0}
    exchange = Exchange("after training")
    shares = {"du": Artefact("statistics", reduce="sum"), "dv": Artefact("statistics", reduce="sum")}
    broadcasts = {"U": Artefact("statistics"), "V": Artefact("statistics")}

    def draws(self, when: str, sizes: Sizes, generator: object) -> dict:
        if when != "share":
            return {}
        order = torch.from_numpy(generator.permutation(sizes.rows)[: self.samples])  # type: ignore[attr-defined]
        batches = -(-len(order) // sizes.batch)
        return {"pick": F.pad(order, (0, batches * sizes.batch - len(order)), value=-1).view(batches, sizes.batch)}

    def client_init(self, model: Model, client: Newcomer) -> PartState:
        return _zeros(model)

    def server_init(self, model: Model, task: Task) -> PartState:
        return _zeros(model)

    def down(self, server: Server) -> dict[str, Value]:
        return {"U": server.part_state["u"], "V": server.part_state["v"]}

    def loss(self, view: View) -> Tensor:
        terms = []
        for name, w in view.parameters.items():
            if name not in view.received["U"]:
                continue
            p = view.received["U"][name] - view.part_state["u"][name]  # (3)
            q = view.received["V"][name] - view.part_state["v"][name]
            terms.append((p * w * w - 2 * q * w).sum())
        return self.lam * torch.stack(terms).sum()  # (4)

    def share(self, client: Client) -> tuple[dict[str, Value], PartState]:
        u = self._fisher(client)  # (1)
        v = {name: u[name] * client.state[name] for name in u}
        du, dv = (_minus(new, client.part_state[key]) for key, new in (("u", u), ("v", v)))
        return {"du": du, "dv": dv}, {"u": u, "v": v}  # (2)

    def collect(self, server: Server, shared: Messages) -> Server:
        if not shared:
            return server
        sums = {key: _plus(total, shared.sum(f"d{key}")) for key, total in server.part_state.items()}
        return server.replace(part_state=sums)  # (2)

    def _fisher(self, client: Client) -> State:
        """Mean over batches of the squared gradient; batches that contain only padding do not count."""
        leaves = {name: client.state[name] for name in client.model.shared}
        total = {name: torch.zeros_like(t) for name, t in leaves.items()}
        count = torch.zeros_like(client.facts.rows)

        def loss(leaves: State, x: Tensor, y: Tensor, keep: Tensor) -> Tensor:
            each = F.cross_entropy(client.model.run(client.state | leaves, x), y, reduction="none")
            return (each * keep).sum() / keep.sum().clamp_min(1)

        for pick in client.draws["pick"]:
            x, y, keep = client.rows(pick)
            grads = torch.func.grad(loss)(leaves, x, y, keep.to(x.dtype))
            total = {name: t + grads[name].pow(2) for name, t in total.items()}
            count = count + keep.any().to(x.dtype)
        return {name: t / count for name, t in total.items()}


def _zeros(model: Model) -> PartState:
    return {key: {name: torch.zeros_like(model.initial[name]) for name in model.shared} for key in ("u", "v")}


def _plus(a: State, b: State) -> State:
    return {name: a[name] + b[name] for name in a}


def _minus(a: State, b: State) -> State:
    return {name: a[name] - b[name] for name in a}


method("fedcurv", "fedavg", "curv")
