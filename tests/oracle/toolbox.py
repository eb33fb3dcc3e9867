"""A small federation, and helpers with which the tests of all methods inspect it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unskew as us
from unskew.base.tree import Message, State
from unskew.models.model import Model
from unskew.protocol.method import Task
from unskew.protocol.part import Part
from unskew.protocol.server_view import Server
from unskew.protocol.step_view import Batch, Clock, ForwardPass, View
from unskew.protocol.work import Work
from unskew.runner.prepare_run import prepare
from unskew.server.federation import Federation
from unskew.server.round_messages import PartMessages, RoundMessages
from unskew.server.snapshot import RoundReport, Snapshot

SIZES = (3, 5, 8, 4)  # rows of the clients
LOCAL = {"epochs": 2, "batch": 4, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}


def network(norm: bool = False) -> nn.Sequential:
    """Five inputs, six hidden units, three classes; the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        extra = [nn.BatchNorm1d(6)] if norm else []
        return nn.Sequential(nn.Sequential(nn.Linear(5, 6), *extra, nn.ReLU()), nn.Linear(6, 3))


def federation(method: Any, sizes: tuple[int, ...] = SIZES, norm: bool = False, **settings: Any) -> Federation:
    """One client per size, on random rows, in float64 unless asked otherwise."""
    gen = np.random.default_rng(3)
    n = sum(sizes)
    x, y = gen.normal(size=(n, 5)).astype("float32"), np.arange(n) % 3
    data = us.from_arrays(x, y, x_test=x, y_test=y, group=np.repeat(np.arange(len(sizes)), sizes))
    engine = {"name": "loop", "workers": 1}
    settings = {"precision": "float64", "local": LOCAL, "rounds": 5, "engine": engine} | settings
    experiment = us.Experiment(method=method, partition={"name": "group"}, device="cpu", **settings)
    return prepare(experiment, data=data, model=network(norm)).federation


def run_rounds(fed: Federation, rounds: int) -> Iterator[tuple[Snapshot, RoundReport]]:
    """Run rounds one by one, recording every message; yields each round's snapshot and report."""
    fed, snap = replace(fed, should_record=lambda round, client: True), fed.start()
    for _ in range(rounds):
        snap, report = fed.run_round(snap)
        fed.store.commit()
        yield snap, report


def last_model(fed: Federation, rounds: int) -> State:
    """The global model after some rounds."""
    *_, (snap, _) = run_rounds(fed, rounds)
    return snap.model


def equal(a: State, b: State) -> bool:
    """Whether two states agree in every bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def train_by_hand(
    fed: Federation,
    start: State,
    round: int,
    client: int,
    correction: State | None = None,
    penalty: Callable[[State], Tensor] | None = None,
) -> State:
    """One client's round in plain PyTorch, including partial batches.

    correction: added to every gradient; penalty: a function of the parameters, added to the loss.
    """
    source, (_, work) = fed.engine.context.client_rows, fed.method.at_round(round, fed.task)
    net = network().double()
    net.load_state_dict(start)
    optimiser = torch.optim.SGD(
        net.parameters(), work.lr, work.momentum, weight_decay=work.weight_decay, nesterov=work.nesterov
    )
    order = fed.engine.context.plan.order(round, client, fed.rows[client], work)
    for index, weight in zip(order.index, order.weight):
        rows = source.index[client][index[weight > 0]]
        optimiser.zero_grad()
        loss = F.cross_entropy(net(source.x[rows].double()), source.y[rows])
        (loss + penalty(dict(net.named_parameters())) if penalty else loss).backward()
        for name, p in net.named_parameters() if correction else ():
            p.grad += correction[name]
        optimiser.step()
    return {name: t.detach().clone() for name, t in net.state_dict().items()}


def gather(part: Part, messages: list[tuple[int, dict[str, Any]]], by_rows: bool = True) -> PartMessages:
    """The server's messages from (rows, artefacts) of clients 0, 1, ..."""
    received = RoundMessages({part.name: part.sends}, by_rows)
    for client, (rows, sent) in enumerate(messages):
        received.add(client, rows, {part.name: sent})
    return received.of(part.name)


def server(model: State, part_state: State | None = None, clients: int = 2) -> Server:
    """A server with a given model and a part's state, before a merge."""
    task = Task(clients, 3, (5,), 5, lambda round: Work(batch=4, lr=0.1))
    return Server(model, part_state or {}, 1, Model(network()), task, torch.Generator)


def view_of(
    model: Model, leaves: State, x: Tensor, y: Tensor, w: Tensor | None = None, start: State | None = None, **extra: Any
) -> View:
    """One step of a client as a part sees it; `extra` replaces fields of the view."""
    batch = Batch(x, y, torch.ones(len(x), dtype=x.dtype) if w is None else w)
    buffers = {name: model.initial[name] for name in model.buffers}
    zero = torch.tensor(0)
    extra = {"received": {}, "part_state": {}, "draws": {}, "streams": {}, "counts": torch.ones(3)} | extra
    forward = ForwardPass(model, leaves, buffers, batch, zero)
    return View(forward, start or model.initial, clock=Clock(zero, zero, zero), **extra)


def logits_view(student: Tensor, teacher: Tensor, y: Tensor, w: Tensor | None = None, **extra: Any) -> View:
    """A step with given local and received logits [b, C], by a linear net on unit vectors."""
    b, classes = student.shape
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(b, classes, bias=False)), dtype=student.dtype)
    x, name = torch.eye(b, dtype=student.dtype), "1.weight"
    extra = {"counts": torch.ones(classes, dtype=student.dtype)} | extra
    return view_of(model, {name: student.T}, x, y, w, start={name: teacher.T}, **extra)


def leaves_of(model: Model) -> State:
    """Trainable copies of the initial parameters."""
    return {name: model.initial[name].clone().requires_grad_() for name in model.parameters}


def messages(snap: Snapshot) -> dict[str, Message]:
    """The message that each client of the last round sent after training."""
    sent: dict[str, Message] = {}
    for entry, _, value in snap.ledger.recorded:
        if (entry.direction, entry.phase) == ("up", "train") and entry.part != "model":
            sent.setdefault(str(entry.client), {}).setdefault(entry.part, {})[entry.artefact] = value
    return sent
