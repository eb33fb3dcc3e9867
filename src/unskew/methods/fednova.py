"""FedNova (Wang et al. 2020): average normalised directions instead of sums over different numbers of steps.

    (1)  d_k = (w^t - w_k) / a_k,  a_k = distance that tau_k unit gradients move the weights, in learning rates:
         momentum rho  a_k = sum_{j=1..tau} (1 - rho^j) / (1 - rho),   proximal mu  a <- a (1 - eta mu) + 1
    (2)  tau_eff = sum_k p_k a_k     (with a proximal term: sum_k p_k tau_k)
    (3)  w^{t+1} = w^t - tau_eff sum_k p_k d_k

Paper: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", NeurIPS 2020.
Running statistics take the plain mean.
Differs: a_k is the displacement of the steps that were taken, as in the paper. The authors' code ignores Nesterov's
look-ahead in it, and with both momentum and a proximal term it counts each step twice, once for either recursion. The
code FedLMD builds on switches on an incomplete variance reduction, which is left out here.
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from unskew.base.errors import UserError
from unskew.base.tree import State, Value
from unskew.methods.fedprox import Proximal
from unskew.protocol.client_view import End
from unskew.protocol.method import Method
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Part
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.work import Work


@part("nova")
class Nova(Part):
    """Averages the clients' normalised update directions."""

    tau: Literal["auto", "effective", "steps"] = Field(
        "auto",
        description="steps averaged in (2); auto: effective steps, or plain steps with the part prox (as the authors)",
    )

    owner = True
    sends = {
        "direction": Artefact("weights", reduce="mean", update=True),
        "tau": Artefact("counts", reduce="mean"),
        "statistics": Artefact("statistics", reduce="mean"),
    }

    def build(self, method: Method, work: Work) -> "Nova":
        if work.optimiser != "sgd":
            raise UserError(
                f"nova: expected local.optimiser: sgd, found {work.optimiser}; FedNova's a_k is defined only for SGD"
            )
        if self.tau != "auto":
            return self
        return replace(self, tau="steps" if method.find(Proximal) else "effective")

    def up(self, end: End) -> tuple[dict[str, Value], State]:
        a = end.effective_steps
        sent: dict[str, Value] = {"direction": {n: -d / a for n, d in end.update.items()}}  # (1)
        sent["tau"] = a if self.tau == "effective" else end.steps
        rest = {name: t for name, t in end.final.items() if name not in end.parameters}
        return sent | ({"statistics": rest} if rest else {}), end.part_state

    def merge(self, server: Server, messages: Messages) -> Server:
        tau_eff, d = messages.mean("tau"), messages.mean("direction")  # (2)
        moved = {n: server.model[n] - tau_eff * d[n] for n in d}  # (3)
        rest = messages.mean("statistics") if "statistics" in messages else {}
        return server.replace(model=server.model | moved | rest)


method("fednova", "fedavg", "nova")
