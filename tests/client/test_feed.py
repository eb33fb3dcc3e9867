"""Each client's inputs from the batch feed of a cohort: rows of its own streams, and the clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unskew as us
from unskew.base.tree import State, Tree
from unskew.client.feed import BatchFeed
from unskew.protocol import method_registry
from unskew.runner.prepare_run import prepare

OWN_ROWS = (7, 3, 5, 4)  # training rows of the clients
STREAM_ROWS = (5, 2, 9, 2)  # rows of each client's own stream
BATCH = 3


class OwnRows(us.Part):
    """A stream of rows from the client's state; clients have different rows and different numbers of them."""

    order: Literal["cycle", "uniform", "join"] = "cycle"

    def streams(self, received: dict, part_state: State) -> dict[str, us.Stream]:
        return {"rows": us.Stream(part_state["x"], part_state["y"], self.order)}


class JoinedTwice(us.Part):
    """Two streams that both join the epoch."""

    def streams(self, received: dict, part_state: State) -> dict[str, us.Stream]:
        return {
            "first": us.Stream(part_state["x"], part_state["y"], "join"),
            "second": us.Stream(-part_state["x"], part_state["y"] + 50, "join"),
        }


@pytest.fixture(autouse=True, scope="module")
def _parts() -> Iterator[None]:
    """Register both parts for this file only; a class can be registered only once."""
    method_registry.method_names()  # loads the package's methods, which must stay registered
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method_registry, "PARTS", dict(method_registry.PARTS))
        us.part("own-rows")(OwnRows)
        us.part("joined-twice")(JoinedTwice)
        yield


def own_rows(client: int) -> State:
    """Rows and labels of a client's stream; each value is 100 (client + 1) plus the row number."""
    x = 100.0 * (client + 1) + torch.arange(STREAM_ROWS[client], dtype=torch.float64)
    return {"x": x[:, None].expand(-1, 2).clone(), "y": x.long()}


def feed_of(method: list, part: str, clients: list[int]) -> BatchFeed:
    """A feed of these clients; the training rows' values are their row numbers, below 100, with labels 0 to 2."""
    numbers = np.arange(sum(OWN_ROWS), dtype="float32")
    x = np.repeat(numbers[:, None], 2, axis=1)
    group = np.repeat(np.arange(len(OWN_ROWS)), OWN_ROWS)
    data = us.from_arrays(x, np.arange(len(x)) % 3, x_test=x, y_test=np.arange(len(x)) % 3, group=group)
    experiment = us.Experiment(
        method=method,
        partition={"name": "group"},
        local={"batch": BATCH, "epochs": 2},
        precision="float64",
        device="cpu",
        engine={"name": "loop", "workers": 1},
    )
    fed = prepare(experiment, data=data, model=nn.Sequential(nn.Flatten(), nn.Linear(2, 3))).federation
    context, states = fed.engine.context, list[Tree]({part: own_rows(k)} for k in clients)
    return BatchFeed(context, context.client_rows, 1, fed.received(fed.start()), clients, states)


def real_rows(feed: BatchFeed, position: int) -> tuple[Tensor, Tensor]:
    """x and labels of all real rows, step by step, of the client at this position in the cohort."""
    batch = feed.between(0, feed.steps[position], len(feed.clients)).batch
    counts = batch["w"][:, position] > 0
    return batch["x"][:, position][counts], batch["y"][:, position][counts]


@pytest.mark.parametrize("order", ["cycle", "uniform"])
def test_every_client_of_a_stack_gets_rows_of_its_own_stream(order: Literal["cycle", "uniform"]) -> None:
    """Exactly the rows that the plan chose for it, in that order, although all clients' rows are in one pool."""
    clients = [2, 0, 3, 1]
    feed = feed_of(["fedavg", {"own-rows": {"order": order}}], "own-rows", clients)
    x, y = feed.between(0, max(feed.steps), len(clients)).streams["own-rows"]["rows"]
    for position, client in enumerate(clients):
        own, steps = own_rows(client), feed.steps[position]
        stream = us.Stream(own["x"], own["y"], order)
        chosen = feed.context.plan.stream_order(1, client, "own-rows/rows", stream, steps, BATCH)
        assert torch.equal(x[:steps, position], own["x"][chosen]), client
        assert torch.equal(y[:steps, position], own["y"][chosen]), client


def test_every_client_of_a_stack_trains_on_its_own_joined_rows() -> None:
    """Two epochs contain each row of the client and of its stream twice, with its label, and no other row."""
    clients = [2, 0, 3, 1]
    feed = feed_of(["fedavg", {"own-rows": {"order": "join"}}], "own-rows", clients)
    starts = np.cumsum([0, *OWN_ROWS])
    for position, client in enumerate(clients):
        x, y = real_rows(feed, position)
        own = torch.arange(starts[client], starts[client + 1])
        assert sorted(x[:, 0].tolist()) == sorted(2 * [*own.tolist(), *own_rows(client)["x"][:, 0].tolist()]), client
        assert torch.equal(y, torch.where(x[:, 0] < 100, x[:, 0].long() % 3, x[:, 0].long())), client


def test_two_streams_can_join_the_same_epoch() -> None:
    """Rows of the second stream are -x with label x + 50."""
    feed = feed_of(["fedavg", "joined-twice"], "joined-twice", [0, 1, 2])
    for position in range(3):
        x, y = real_rows(feed, position)
        joined = own_rows(position)["x"][:, 0].tolist()
        assert sorted(v for v in x[:, 0].tolist() if abs(v) >= 100) == sorted(2 * [*joined, *(-v for v in joined)])
        second = x[:, 0] < 0
        assert torch.equal(y[second], -x[second, 0].long() + 50)


def test_the_clock_does_not_depend_on_how_steps_are_grouped() -> None:
    """Steps 2 and 3 are numbered 2 and 3, whichever step was gathered first. Epochs have three and two steps."""
    feed = feed_of(["fedavg", {"own-rows": {"order": "cycle"}}], "own-rows", [0, 2])
    for first, last in ((0, 4), (2, 4), (3, 4)):
        step, epoch, _ = feed.between(first, last, 2).clock
        assert step.tolist() == [[t, t] for t in range(first, last)]
        assert epoch.tolist() == [[t // 3, t // 2] for t in range(first, last)]
