"""FedOpt (Reddi et al. 2021): the server takes the mean update as a gradient for Adam, Yogi or Adagrad.

    (1)  D = sum_k p_k w_k - w^t
    (2)  m <- beta1 m + (1 - beta1) D,   m_0 = 0
    (3)  FedAdam      v <- beta2 v + (1 - beta2) D^2
         FedYogi      v <- v - (1 - beta2) D^2 sign(v - D^2)
         FedAdagrad   v <- v + D^2                              v_0 = tau^2 for all three
    (4)  w^{t+1} = w^t + eta m / (sqrt(v) + tau)

Paper: Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive Federated Optimization", ICLR 2021.
There is no bias correction, as in the paper. Running statistics take the plain mean.
Differs: nothing; the paper searches eta for each task, so that its default here is our own choice.
"""

from pydantic import Field
from torch import Tensor

from unskew.base.tree import PartState, State, Value
from unskew.models.model import Model
from unskew.protocol.client_view import End
from unskew.protocol.method import Task
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Part
from unskew.protocol.server_view import Messages, Server


class ServerOptimiser(Part):
    """What the three have in common; each has its own second moment."""

    lr: float
    beta1: float
    tau: float

    owner = True
    sends = {"weights": Artefact("weights", reduce="mean")}

    def server_init(self, model: Model, task: Task) -> PartState:
        zeros = {name: model.initial[name].new_zeros(model.initial[name].shape) for name in model.shared}
        return {"m": zeros, "v": {name: zero + self.tau**2 for name, zero in zeros.items()}}

    def up(self, end: End) -> tuple[dict[str, Value], State]:
        return {"weights": end.final}, end.part_state

    def merge(self, server: Server, messages: Messages) -> Server:
        mean, w, old = messages.mean("weights"), server.model, server.part_state
        d = {name: mean[name] - w[name] for name in old["m"]}  # (1)
        m = {name: self.beta1 * old["m"][name] + (1 - self.beta1) * d[name] for name in d}  # (2)
        v = {name: self.second_moment(old["v"][name], d[name].square()) for name in d}
        new = mean | {name: w[name] + self.lr * m[name] / (v[name].sqrt() + self.tau) for name in d}  # (4)
        return server.replace(model=new, part_state={"m": m, "v": v})

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """v after this round; square: the squared mean update."""
        raise NotImplementedError


@part("server-adam")
class ServerAdam(ServerOptimiser):
    """Adam on the server."""

    lr: float = Field(
        0.01, gt=0, description="eta, the server's learning rate; own choice, the paper searches it for each task"
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="momentum; 0.9 in the paper")
    beta2: float = Field(0.99, ge=0, lt=1, description="decay of v; 0.99 in the paper")
    tau: float = Field(1e-3, gt=0, description="adaptivity, a larger one is closer to momentum; 0.001 in the paper")

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square  # (3)


@part("server-yogi")
class ServerYogi(ServerAdam):
    """Yogi on the server: v changes by at most a share of the squared update, however large v is."""

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * (v - square).sign()  # (3)


@part("server-adagrad")
class ServerAdagrad(ServerOptimiser):
    """Adagrad on the server: v only grows, so that steps shrink."""

    lr: float = Field(
        0.01, gt=0, description="eta, the server's learning rate; own choice, the paper searches it for each task"
    )
    beta1: float = Field(0.0, ge=0, lt=1, description="momentum; 0 in the paper")
    tau: float = Field(1e-3, gt=0, description="adaptivity, a larger one is closer to momentum; 0.001 in the paper")

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square  # (3)


method("fedadam", "fedavg", "server-adam")
method("fedyogi", "fedavg", "server-yogi")
method("fedadagrad", "fedavg", "server-adagrad")
