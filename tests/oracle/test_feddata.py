"""FedData: which rows are in the pool, the length of an epoch, and averaging by the clients' own rows."""

import pytest
import torch
from toolbox import equal, federation, last_model, messages, network, run_rounds
from torch.nn import functional as F

from unskew.client.feed import BatchFeed
from unskew.protocol.part import Sizes

SIZES = (30, 25, 4, 1)  # with a tenth: 3, 2, 0 and 0 rows


def test_the_pool_is_a_tenth_of_all_clients_rows_collected_before_round_one() -> None:
    """Clients that are not sampled share too; a share that rounds to zero is an entry of 0 bytes."""
    fed = federation("feddata", SIZES, participation=0.25)
    (snap, _), *_ = run_rounds(fed, 2)
    pool = snap.parts["pool"]
    assert len(pool["rows"]) == len(pool["labels"]) == sum(round(0.1 * n) for n in SIZES) == 5
    up = {e.client: e.bytes for e in snap.ledger.entries if (e.kind, e.direction) == ("raw", "up")}
    assert up == {0: 3 * 40, 1: 2 * 40, 2: 0, 3: 0}
    source = fed.engine.context.client_rows
    held = source.prepare(source.x[source.index[0]]).double()
    assert all((row == held).all(1).any() for row in pool["rows"][:3])


def test_the_pool_is_sent_once_to_each_client() -> None:
    fed = federation("feddata", SIZES, participation=0.5)
    down = [
        e.client
        for snap, _ in run_rounds(fed, 5)
        for e in snap.ledger.entries
        if (e.kind, e.direction) == ("raw", "down")
    ]
    assert len(down) == len(set(down)) > 2


def test_the_pool_makes_epochs_longer_but_not_weights_larger() -> None:
    """Client 3 has one row and gets five from the pool: two steps per epoch instead of one, but weighs 1 of 60."""
    fed = federation("feddata", SIZES)
    ((snap, _),) = run_rounds(fed, 1)
    received = fed.received(snap)
    feed = BatchFeed(fed.engine.context, fed.engine.context.client_rows, 2, received, [3], [{}])
    assert feed.steps == [2 * 2]
    batch = feed.between(0, 4, 1).batch
    real_rows = batch["x"][batch["w"] > 0]
    assert len(real_rows) == 2 * 6
    weights = [messages(snap)[str(k)]["average"]["weights"] for k in range(4)]
    for name, tensor in snap.model.items():
        want = sum(n * w[name] for n, w in zip(SIZES, weights)) / sum(SIZES)
        torch.testing.assert_close(tensor, want)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_client_trains_on_its_rows_and_the_pools_as_in_plain_pytorch(engine: str) -> None:
    """Every row has its own label; positions after the client's rows are the pool's, in the order of the clients."""
    sizes = (6, 5, 11, 1)  # with two fifths: 2, 2, 4 and 0 rows in the pool
    fed = federation([{"feddata": {"fraction": 0.4}}], sizes, engine={"name": engine})
    source, plan, work = fed.engine.context.client_rows, fed.engine.context.plan, fed.task.work
    picks = [
        plan.part_draws(fed.method.parts[-1], "share", 1, k, Sizes(n, 0, work.batch, 3, {}))["pick"]
        for k, n in enumerate(sizes)
    ]
    pool = torch.cat([source.index[k][pick] for k, pick in enumerate(picks) if pick.min() >= 0])
    assert len(pool) == 8
    ((snap, _),) = run_rounds(fed, 1)
    for client, sent in messages(snap).items():
        rows = torch.cat([source.index[int(client)], pool])
        x, y = source.prepare(source.x[rows]).double(), source.y[rows]
        net = network().double()
        optimiser = torch.optim.SGD(net.parameters(), work.lr, work.momentum, weight_decay=work.weight_decay)
        order = plan.order(1, int(client), len(rows), work)
        for index, weight in zip(order.index, order.weight):
            chosen = index[weight > 0]
            optimiser.zero_grad()
            F.cross_entropy(net(x[chosen]), y[chosen]).backward()
            optimiser.step()
        torch.testing.assert_close(sent["average"]["weights"], dict(net.state_dict()), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("norm", [False, True])
def test_fraction_zero_is_fedavg(norm: bool) -> None:
    off = federation([{"feddata": {"fraction": 0.0}}], norm=norm)
    assert equal(last_model(off, 3), last_model(federation("fedavg", norm=norm), 3))


def test_released_preset_draws_with_replacement_and_rounds_down() -> None:
    fed = federation("feddata", (100, 19), rules="released")
    (snap, _), *_ = run_rounds(fed, 1)
    assert {e.client: e.bytes // 8 for e in snap.ledger.entries if (e.kind, e.direction) == ("labels", "up")} == {
        0: 10,
        1: 1,
    }
    full = federation([{"feddata": {"fraction": 1.0}}], (100, 19), rules="released")
    ((snap, _),) = run_rounds(full, 1)
    assert len({tuple(row.tolist()) for row in snap.parts["pool"]["rows"]}) < 119
