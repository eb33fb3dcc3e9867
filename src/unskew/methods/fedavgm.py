"""FedAvgM (Hsu et al. 2019): heavy-ball momentum on the server.

    (1)  d = w^t - sum_k p_k w_k
    (2)  v <- beta v + d,  v_0 = 0
    (3)  w^{t+1} = w^t - v

Paper: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
arXiv 1909.06335, 2019.
(3) is computed as (mean - beta v_old), which is equal but avoids the rounding of w - (w - mean), so that beta = 0 is
FedAvg bit for bit. Running statistics take the plain mean.
Differs: nothing; no damping and no Nesterov, as in the code FedLMD builds on.
"""

from pydantic import Field

from unskew.base.tree import State, Value
from unskew.models.model import Model
from unskew.protocol.client_view import End
from unskew.protocol.method import Task
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Part
from unskew.protocol.server_view import Messages, Server


@part("avgm")
class AverageMomentum(Part):
    """The weighted mean with momentum."""

    beta: float = Field(0.7, ge=0, lt=1, description="momentum; 0.7 in FedLMD's code, 0.9 in FedDecorr's")

    owner = True
    sends = {"weights": Artefact("weights", reduce="mean")}
    neutral = {"beta": 0.0}

    def server_init(self, model: Model, task: Task) -> State:
        return {name: model.initial[name].new_zeros(model.initial[name].shape) for name in model.shared}

    def up(self, end: End) -> tuple[dict[str, Value], State]:
        return {"weights": end.final}, end.part_state

    def merge(self, server: Server, messages: Messages) -> Server:
        mean, w, old = messages.mean("weights"), server.model, server.part_state
        d = {name: w[name] - mean[name] for name in old}  # (1)
        v = {name: self.beta * old[name] + d[name] for name in old}  # (2)
        new = mean | {name: mean[name] - self.beta * old[name] for name in old}  # (3)
        return server.replace(model=new, part_state=v)


method("fedavgm", "fedavg", "avgm")
