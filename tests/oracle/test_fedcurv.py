"""FedCurv: the reduced penalty, the Fisher pass, and the sums over clients."""

import pytest
import torch
from toolbox import equal, federation, last_model, leaves_of, messages, network, run_rounds, view_of
from torch.nn import functional as F

from unskew.base.tree import flatten
from unskew.methods.fedcurv import Curvature
from unskew.models.model import Model
from unskew.protocol.part import Sizes

U = {1: torch.tensor([1.0, 2.0]), 2: torch.tensor([3.0, 0.0])}
W = {1: torch.tensor([1.0, 1.0]), 2: torch.tensor([0.0, 2.0])}


@pytest.mark.papers
def test_reduced_penalty_and_gradient_match_a_calculation_by_hand() -> None:
    """u_1=(1,2), w_1=(1,1), u_2=(3,0), w_2=(0,2), w=(.5,.5): P=(4,2), Q=(1,2), -1.5, gradient 2(Pw - Q) = (2,-2)."""
    w = torch.tensor([0.5, 0.5], requires_grad=True)
    model = Model(network())
    received = {"U": {"w": U[1] + U[2]}, "V": {"w": U[1] * W[1] + U[2] * W[2]}}
    part_state = {"u": {"w": torch.zeros(2)}, "v": {"w": torch.zeros(2)}}
    view = view_of(
        model, {"w": w}, torch.zeros(1, 5), torch.zeros(1, dtype=torch.int64), received=received, part_state=part_state
    )
    loss = Curvature().loss(view)
    full = sum((U[j] * (w - W[j]) ** 2).sum() for j in (1, 2))
    assert loss.item() == -1.5
    assert full.item() == 1.5
    assert torch.autograd.grad(loss, w)[0].tolist() == [2.0, -2.0]


def test_own_curvature_is_subtracted() -> None:
    """Client 1 subtracts its own sums, so client 2's penalty remains: 3 w_0^2 at w = (.5, .5), with constant 0."""
    model = Model(network())
    received = {"U": {"w": U[1] + U[2]}, "V": {"w": U[1] * W[1] + U[2] * W[2]}}
    part_state = {"u": {"w": U[1]}, "v": {"w": U[1] * W[1]}}
    w = torch.tensor([0.5, 0.5], requires_grad=True)
    view = view_of(
        model, {"w": w}, torch.zeros(1, 5), torch.zeros(1, dtype=torch.int64), received=received, part_state=part_state
    )
    assert Curvature().loss(view).item() == 0.75
    assert torch.equal(received["U"]["w"], U[1] + U[2])


def test_first_round_is_fedavg_and_the_second_is_not() -> None:
    curv, plain = ([snap.model for snap, _ in run_rounds(federation(m), 2)] for m in ("fedcurv", "fedavg"))
    assert equal(curv[0], plain[0])
    assert not equal(curv[1], plain[1])


def test_lambda_zero_is_fedavg() -> None:
    assert equal(last_model(federation([{"fedcurv": {"lam": 0.0}}]), 3), last_model(federation("fedavg"), 3))


def test_server_state_is_the_sum_of_all_clients_latest_curvature() -> None:
    fed = federation("fedcurv", participation=0.5)
    for snap, _ in run_rounds(fed, 5):
        for name, total in flatten(snap.parts["curv"]).items():
            kept = sum(flatten(tree["curv"])[name] for tree in fed.store.entries.values())
            torch.testing.assert_close(total, kept, rtol=1e-10, atol=1e-13)


def test_fisher_is_the_mean_of_squared_batch_gradients() -> None:
    """Client 1 has five rows in batches of four: squared gradients of the mean over 4 and over 1 row, averaged."""
    fed = federation("fedcurv")
    ((snap, _),) = run_rounds(fed, 1)
    source, context = fed.engine.context.client_rows, fed.engine.context
    pick = fed.engine.context.plan.part_draws(fed.method.parts[-1], "share", 1, 1, _sizes(5))["pick"]
    model = Model(network(), dtype=torch.float64)
    leaves = leaves_of(model) | {
        name: t.clone().requires_grad_() for name, t in messages(snap)["1"]["average"]["weights"].items()
    }
    squares = []
    for batch in pick:
        rows = source.index[1][batch[batch >= 0]]
        loss = F.cross_entropy(model.run(leaves, context.client_rows.prepare(source.x[rows])), source.y[rows])
        squares.append([g.pow(2) for g in torch.autograd.grad(loss, list(leaves.values()))])
    for (name, _), *grads in zip(leaves.items(), *squares):
        torch.testing.assert_close(fed.store.get(1)["curv"]["u"][name], sum(grads) / len(grads))


def _sizes(rows: int) -> Sizes:
    return Sizes(rows, 0, 4, 3, {})


def test_traffic_is_three_models_each_way_after_round_one() -> None:
    """Down: w, U and V. Up: w, du, dv and the number of rows."""
    *_, (snap, _) = run_rounds(federation("fedcurv"), 2)
    size = sum(t.numel() * 8 for t in network().state_dict().values())
    assert sum(e.bytes for e in snap.ledger.entries if e.direction == "down") == 3 * 4 * size
    assert sum(e.bytes for e in snap.ledger.entries if e.direction == "up") == 4 * (3 * size + 8)
