"""Test-only parts that use hooks in combinations that no shipped method has: small FLea, FedData and FedDig."""

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

import unskew as us
from unskew.base.tree import State, Value
from unskew.models.model import Model
from unskew.protocol.method import Task
from unskew.protocol.work import Work

CUT = 1


@us.part("test-buffer")
class Buffer(us.Part):
    """Mixes in features of the last round's clients: draws, share, collect, down, streams (cycle), partial passes."""

    strength: float = Field(0.5, ge=0)
    fraction: float = Field(0.4, gt=0, le=1)

    neutral = {"strength": 0.0}
    shares = {"f": us.Artefact("features", reduce="rows"), "y": us.Artefact("labels", reduce="rows")}
    broadcasts = {"f": us.Artefact("features"), "y": us.Artefact("labels")}
    exchange = us.Exchange("after merge")

    def draws(self, when: str, sizes: us.Sizes, generator: np.random.Generator) -> dict:
        if when == "steps":
            return {"beta": generator.random((sizes.steps, sizes.batch))}
        if when == "share":
            count = max(1, round(self.fraction * sizes.rows))
            return {"pick": generator.permutation(sizes.rows)[:count]}
        return {}

    def share(self, client: us.Client) -> tuple[dict[str, Value], State]:
        x, y, keep = client.rows(client.draws["pick"])
        return {"f": us.Rows(client.at(x, CUT), keep), "y": us.Rows(y, keep)}, client.part_state

    def collect(self, server: us.Server, shared: us.Messages) -> us.Server:
        return server.replace(part_state={"f": shared.rows("f"), "y": shared.rows("y")}) if shared else server

    def down(self, server: us.Server) -> dict[str, Value]:
        return dict(server.part_state)

    def streams(self, received: dict, part_state: State) -> dict[str, us.Stream]:
        return {"buffer": us.Stream(received["f"], received["y"])} if received else {}

    def loss(self, view: us.View) -> Tensor:
        buffer = view.stream("buffer")
        if buffer is None:
            return self.strength * view.mean(view.at(CUT).flatten(1).pow(2).mean(1))
        beta = view.draws["beta"]
        mixed = beta[:, None] * view.at(CUT) + (1 - beta[:, None]) * buffer.x
        return self.strength * view.mean(F.cross_entropy(view.run(mixed, CUT), buffer.y, reduction="none"))


@us.part("test-joined")
class Joined(us.Part):
    """Raw rows of all clients, shared once and joined to every epoch: exchange before training, lasting broadcast."""

    shares = {"x": us.Artefact("raw", reduce="rows"), "y": us.Artefact("labels", reduce="rows")}
    broadcasts = {"x": us.Artefact("raw", lasting=True), "y": us.Artefact("labels", lasting=True)}
    exchange = us.Exchange("before training", who="all", model=False)

    def share(self, client: us.Client) -> tuple[dict[str, Value], State]:
        x, y, keep = client.rows(client.positions)
        keep = keep & (torch.arange(len(keep)) % 3 == 0)
        return {"x": us.Rows(x, keep), "y": us.Rows(y, keep)}, client.part_state

    def collect(self, server: us.Server, shared: us.Messages) -> us.Server:
        return server.replace(part_state={"x": shared.rows("x"), "y": shared.rows("y")})

    def down(self, server: us.Server) -> dict[str, Value]:
        return dict(server.part_state)

    def streams(self, received: dict, part_state: State) -> dict[str, us.Stream]:
        return {"shared": us.Stream(received["x"], received["y"], "join")}


@us.part("test-own")
class OwnStream(us.Part):
    """A stream of rows in a client's state, which one client does not have.

    Streams and states of other shapes, draws for `client_init`, and `at_round`.
    """

    strength: float = Field(0.3, ge=0)

    neutral = {"strength": 0.0}

    def draws(self, when: str, sizes: us.Sizes, generator: np.random.Generator) -> State:
        return {"x": generator.normal(size=(sizes.rows // 3, 5))} if when == "init" else {}

    def client_init(self, model: Model, client: us.Newcomer) -> State:
        x = client.draws["x"].to(model.initial["0.0.weight"].dtype)
        return {"x": x, "count": torch.zeros(())}

    def at_round(self, round: int, work: Work) -> tuple["OwnStream", Work]:
        return type(self)(strength=self.strength * round), work

    def streams(self, received: dict, part_state: State) -> dict[str, us.Stream]:
        return {"own": us.Stream(part_state["x"], torch.zeros(len(part_state["x"]), dtype=torch.int64), "uniform")}

    def loss(self, view: us.View) -> Tensor:
        own = view.stream("own")
        if own is None:
            return self.strength * view.mean(view.logits.pow(2).mean(1))
        growth = 1.0 + view.clock.epoch
        return self.strength * growth * F.cross_entropy(view.run(own.x, 0), own.y)

    def up(self, end: us.End) -> tuple[dict[str, Value], State]:
        return {}, end.part_state | {"count": end.part_state["count"] + end.steps}


@us.part("test-digest")
class Digest(us.Part):
    """Noised rows, sent once, that replace absent clients and train the model on the server: batch, step."""

    scale: float = Field(0.5, gt=0)

    edits_model = True
    shares = {"x": us.Artefact("digest"), "y": us.Artefact("labels")}
    exchange = us.Exchange("before round", who="newcomers", model=False)

    def draws(self, when: str, sizes: us.Sizes, generator: np.random.Generator) -> State:
        return {"noise": generator.normal(size=(sizes.rows, 5))} if when == "share" else {}

    def batch(self, batch: us.Batch, received: dict, train: bool) -> us.Batch:
        return us.Batch(self.scale * batch.x, batch.y, batch.w, batch.more)

    def share(self, client: us.Client) -> tuple[dict[str, Value], State]:
        x, y, keep = client.rows(client.positions)
        soft = F.one_hot(y, 3).to(x.dtype) * 0.8 + 0.2 / 3
        return {"x": us.Rows(x + 0.1 * client.draws["noise"], keep), "y": us.Rows(soft, keep)}, client.part_state

    def collect(self, server: us.Server, shared: us.Messages) -> us.Server:
        new_rows = {f"{name}-{k}": value for name in ("x", "y") for k, value in shared.each(name)}
        return server.replace(part_state=server.part_state | new_rows)

    def stand_ins(self, server: us.Server, absent: list[int]) -> dict[int, us.StandIn]:
        stored = [k for k in absent if f"x-{k}" in server.part_state]
        return {
            k: us.StandIn(server.part_state[f"x-{k}"], server.part_state[f"y-{k}"], len(server.part_state[f"x-{k}"]))
            for k in stored
        }

    def step(self, server: us.Server) -> us.Server:
        names = sorted(name for name in server.part_state if name.startswith("x-"))
        if not names:
            return server
        x = torch.cat([server.part_state[name] for name in names])
        y = torch.cat([server.part_state[name.replace("x", "y", 1)] for name in names])
        leaves = {name: server.model[name].clone().requires_grad_() for name in server.net.parameters}
        loss = F.cross_entropy(server.net.run(server.model | leaves, self.scale * x), y)
        grads = torch.autograd.grad(loss, list(leaves.values()))
        moved = {name: leaf.detach() - 0.05 * grad for (name, leaf), grad in zip(leaves.items(), grads)}
        return server.replace(model=server.model | moved)


@us.part("test-average")
class AverageWithState(us.Part):
    """An owner with server state, to test that a later owner replaces an earlier one."""

    owner = True
    sends = {"weights": us.Artefact("weights", reduce="mean"), "rows": us.Artefact("counts", reduce="sum")}

    def server_init(self, model: Model, task: Task) -> State:
        return {"rounds": torch.zeros(())}

    def up(self, end: us.End) -> tuple[dict[str, Value], State]:
        return {"weights": end.final, "rows": end.facts.rows}, end.part_state

    def merge(self, server: us.Server, messages: us.Messages) -> us.Server:
        state = {"rounds": server.part_state["rounds"] + messages.sum("rows")}
        return server.replace(model=messages.mean("weights"), part_state=state)


METHODS = ("test-buffered", "test-sharing", "test-own-rows", "test-digests", "test-owned", "test-all")
us.method("test-buffered", "fedavg", "test-buffer")
us.method("test-sharing", "fedavg", "test-joined")
us.method("test-own-rows", "fedavg", "test-own")
us.method("test-digests", "fedavg", "test-digest")
us.method("test-owned", "fedavg", "test-average")
us.method("test-all", "fedavg", "prox", "moon", "test-joined", "test-own", "avgm")
