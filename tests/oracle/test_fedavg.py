"""FedAvg: the weighted mean, the client loss, and whole rounds against plain PyTorch."""

from typing import Any

import pytest
import torch
from toolbox import (
    LOCAL,
    SIZES,
    equal,
    federation,
    gather,
    last_model,
    leaves_of,
    messages,
    network,
    run_rounds,
    server,
    train_by_hand,
    view_of,
)
from torch.nn import functional as F

from unskew.base.errors import UserError
from unskew.methods.fedavg import Average, CrossEntropy
from unskew.models.model import Model
from unskew.server.round_messages import in_declared_order


@pytest.mark.papers
def test_mean_is_weighted_by_rows() -> None:
    """Rows (1, 3), scalars (0, 4): (1*0 + 3*4) / 4 = 3."""
    merged = Average().merge(
        server({"w": torch.tensor(9.0)}),
        gather(Average(), [(1, {"weights": {"w": torch.tensor(0.0)}}), (3, {"weights": {"w": torch.tensor(4.0)}})]),
    )
    assert merged.model == {"w": torch.tensor(3.0)}


def test_uniform_weights_give_the_plain_mean() -> None:
    """(0 + 4) / 2 = 2 for any numbers of rows."""
    sent = [(1, {"weights": {"w": torch.tensor(0.0)}}), (3, {"weights": {"w": torch.tensor(4.0)}})]
    assert gather(Average(), sent, by_rows=False).mean("weights") == {"w": torch.tensor(2.0)}


def test_mean_of_integers_is_the_first_clients_value() -> None:
    sent = [(1, {"weights": {"n": torch.tensor(5)}}), (3, {"weights": {"n": torch.tensor(8)}})]
    merged = gather(Average(), sent).mean("weights")
    assert merged["n"].dtype == torch.int64
    assert int(merged["n"]) == 5


def test_mean_of_identical_clients_changes_no_bit() -> None:
    """Rows 1, 3, 7: thirds and elevenths are not exact in binary, but the float32 mean must equal the input."""
    w = torch.randn(10_000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-20, 20, 10_000)
    merged = gather(Average(), [(n, {"weights": {"w": w}}) for n in (1, 3, 7)]).mean("weights")
    assert merged["w"].dtype == torch.float32
    assert torch.equal(merged["w"], w)


def test_mean_does_not_depend_on_the_order_of_names() -> None:
    a, b = {"p": torch.tensor(1.0), "q": torch.tensor(2.0)}, {"q": torch.tensor(4.0), "p": torch.tensor(3.0)}
    merged = gather(Average(), [(1, {"weights": a}), (1, {"weights": b})]).mean("weights")
    assert (float(merged["p"]), float(merged["q"])) == (2.0, 3.0)


def test_undeclared_artefact_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="secret"):
        in_declared_order({"average": {"secret": torch.tensor(1.0)}}, {"average": Average.sends})


def test_loss_ignores_filler_rows() -> None:
    """Three rows of which the last is filler: the mean of two cross-entropies, and no gradient from the third."""
    model = Model(network(), dtype=torch.float64)
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y, leaves = torch.tensor([0, 2, 1]), leaves_of(model)
    loss = CrossEntropy().loss(view_of(model, leaves, x, y, torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)))
    net = network().double()
    plain = F.cross_entropy(net(x[:2]), y[:2])
    torch.testing.assert_close(loss, plain)
    for a, b in zip(torch.autograd.grad(loss, leaves.values()), torch.autograd.grad(plain, net.parameters())):
        torch.testing.assert_close(a, b)


def test_step_does_not_change_the_statistics_it_was_given() -> None:
    """BatchNorm writes in place: a step must write to copies and return them."""
    model = Model(network(norm=True), dtype=torch.float64)
    before = {name: t.clone() for name, t in model.initial.items()}
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    view = view_of(model, leaves_of(model), x, torch.tensor([0, 1, 2, 0]))
    CrossEntropy().loss(view)
    assert equal(model.initial, before)
    assert int(view._pass.buffers["0.1.num_batches_tracked"]) == 1
    assert not torch.equal(view._pass.buffers["0.1.running_mean"], before["0.1.running_mean"])


@pytest.mark.parametrize("local", [LOCAL, LOCAL | {"nesterov": True, "steps": 3, "schedule": "cosine"}])
def test_rounds_equal_plain_pytorch(local: dict[str, Any]) -> None:
    """Fresh optimiser each round, decayed rate, partial batches, mean by rows: three rounds of four clients."""
    fed = federation("fedavg", local=local)
    w = fed.start().model
    for round, (snap, _) in enumerate(run_rounds(fed, 3), 1):
        finals = [train_by_hand(fed, w, round, k) for k in range(len(SIZES))]
        w = {name: sum(n * f[name] for n, f in zip(SIZES, finals)) / sum(SIZES) for name in w}
        torch.testing.assert_close(snap.model, w, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_optimiser_with_scope_step_is_a_new_pytorch_optimiser_at_every_step(optimiser: str, engine: str) -> None:
    """Momentum and Adam's averages and counter are reset at every step, as in FLea's released code."""
    local = {"epochs": 2, "batch": 4, "lr": 0.1, "weight_decay": 1e-3, "optimiser": optimiser, "scope": "step"}
    local |= {"momentum": 0.9} if optimiser == "sgd" else {}
    fed = federation("fedavg", local=local, engine={"name": engine})
    source, plan, work = fed.engine.context.client_rows, fed.engine.context.plan, fed.task.work
    start = fed.start().model
    ((snap, _),) = run_rounds(fed, 1)
    for client, rows in enumerate(SIZES):
        net = network().double()
        net.load_state_dict(start)
        order = plan.order(1, client, rows, work)
        for index, weight in zip(order.index, order.weight):
            chosen = source.index[client][index[weight > 0]]
            fresh: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), 0.1, weight_decay=1e-3)
            if optimiser == "sgd":
                fresh = torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=1e-3)
            fresh.zero_grad()
            F.cross_entropy(net(source.x[chosen].double()), source.y[chosen]).backward()
            fresh.step()
        sent = messages(snap)[str(client)]["average"]["weights"]
        torch.testing.assert_close(sent, dict(net.state_dict()), rtol=1e-9, atol=1e-10)


def test_rounds_with_uniform_weights_take_the_plain_mean() -> None:
    fed = federation("fedavg", weights="uniform")
    start = fed.start().model
    finals = [train_by_hand(fed, start, 1, k) for k in range(len(SIZES))]
    want = {name: sum(f[name] for f in finals) / len(finals) for name in start}
    torch.testing.assert_close(last_model(fed, 1), want, rtol=1e-11, atol=1e-12)


def test_running_statistics_are_averaged_and_counters_copied() -> None:
    """Rows (3, 5) in batches of 4, two epochs: client 0 counts 2 batches, client 1 counts 4; the 2 is kept."""
    fed = federation("fedavg", sizes=(3, 5), norm=True)
    ((snap, _),) = run_rounds(fed, 1)
    sent = [messages(snap)[k]["average"]["weights"] for k in ("0", "1")]
    mean = "0.1.running_mean"
    assert not torch.equal(sent[0][mean], sent[1][mean])
    torch.testing.assert_close(snap.model[mean], (3 * sent[0][mean] + 5 * sent[1][mean]) / 8)
    counts = [int(state["0.1.num_batches_tracked"]) for state in (*sent, snap.model)]
    assert counts == [2, 4, 2]


def test_clients_send_only_the_model_and_the_number_of_rows() -> None:
    """Down: 57 parameters of 8 bytes to each of four clients; up: the same and an 8-byte count."""
    fed = federation("fedavg")
    ((snap, _),) = run_rounds(fed, 1)
    numbers = 5 * 6 + 6 + 6 * 3 + 3
    assert snap.ledger.bytes_down == 4 * numbers * 8
    assert snap.ledger.bytes_up == 4 * (numbers * 8 + 8)
