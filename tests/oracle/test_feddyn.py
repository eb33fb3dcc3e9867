"""FedDyn: two rounds by hand, the paper's own form of it, and the optimum that FedAvg misses."""

import pytest
import torch
from toolbox import (
    LOCAL,
    SIZES,
    federation,
    gather,
    leaves_of,
    messages,
    network,
    run_rounds,
    server,
    train_by_hand,
    view_of,
)
from torch import Tensor

from unskew.base.tree import State
from unskew.methods.feddyn import DynamicRegularisation
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts, End


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def end_of(start: float, final: float, part_state: float = 0.0) -> End:
    """A client that went from `start` to `final`; "s" is a running statistic."""
    return End(
        start={"w": number(start), "s": number(0.0)},
        final={"w": number(final), "s": number(5.0)},
        part_state={"w": number(part_state)},
        received={},
        facts=ClientFacts(number(1.0), torch.ones(3)),
        steps=number(1.0),
        effective_steps=number(1.0),
        lr=number(0.1),
        parameters=("w",),
    )


@pytest.mark.papers
def test_two_rounds_match_a_calculation_by_hand() -> None:
    """K = 4, |S| = 2, w = 1. Updates -0.5, -0.1: s = -0.6/4 = -0.15, w = 0.7 - 0.15 = 0.55. Updates -0.15, 0.05:
    s = -0.15 - 0.1/4 = -0.175, w = 0.5 - 0.175 = 0.325. Rows do not count."""
    part = DynamicRegularisation()
    state = server({"w": number(1.0), "s": number(0.0)}, {"w": number(0.0)}, clients=4)
    d, actual = {0: 0.0, 1: 0.0}, []
    for finals in ((0.5, 0.9), (0.4, 0.6)):
        sent = []
        for k, final in enumerate(finals):
            message, own = part.up(end_of(float(state.model["w"]), final, d[k]))
            d[k] = float(own["w"])
            sent.append((1 + 10 * k, message))
        state = part.merge(state, gather(part, sent))
        actual += [float(state.part_state["w"]), float(state.model["w"])]
    assert actual == pytest.approx([-0.15, 0.55, -0.175, 0.325], rel=1e-14)
    assert d == pytest.approx({0: -0.65, 1: -0.05}, rel=1e-14)
    assert float(state.model["s"]) == 5.0
    assert set(state.part_state) == {"w"}


def test_gradient_of_the_loss() -> None:
    """alpha (d + w - w^t)."""
    model = Model(network(), dtype=torch.float64)
    leaves, gen = leaves_of(model), torch.Generator().manual_seed(2)
    d, start = ({n: torch.randn(w.shape, generator=gen, dtype=w.dtype) for n, w in leaves.items()} for _ in range(2))
    view = view_of(
        model, leaves, torch.zeros(2, 5, dtype=torch.float64), torch.tensor([0, 1]), start=start, part_state=d
    )
    loss = DynamicRegularisation(alpha=0.3).loss(view)
    for name, gradient in zip(leaves, torch.autograd.grad(loss, leaves.values())):
        torch.testing.assert_close(gradient, 0.3 * (d[name] + leaves[name] - start[name]), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_state_of_the_server_is_the_mean_over_all_clients(participation: float, norm: bool) -> None:
    fed = federation("feddyn", participation=participation, rounds=6, norm=norm)
    for snap, _ in run_rounds(fed, 6):
        own = [fed.store.get(k)["dyn"] for k in range(len(SIZES))]
        assert all(set(d) == set(fed.model.parameters) for d in own)
        mean = {name: sum(d[name] for d in own) / len(own) for name in own[0]}
        torch.testing.assert_close(snap.parts["dyn"], mean, rtol=1e-11, atol=1e-12)
        assert any(t.abs().max() > 1e-3 for t in mean.values())


@pytest.mark.papers
@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_rounds_equal_the_paper_in_plain_pytorch(participation: float) -> None:
    """The paper's own form: g_k, an estimate of client k's gradient, and h."""
    alpha, clients = 0.2, len(SIZES)
    fed = federation([{"feddyn": {"alpha": alpha}}], participation=participation)
    theta = fed.start().model
    zero: State = {name: torch.zeros_like(theta[name]) for name in fed.model.parameters}
    g, h = [zero] * clients, zero
    for round, (snap, _) in enumerate(run_rounds(fed, 3), 1):
        finals = {}
        for k in sorted(map(int, messages(snap))):

            def penalty(w: State, own: State = g[k], theta: State = theta) -> Tensor:
                linear = sum((own[n] * w[n]).sum() for n in w)
                return alpha / 2 * sum((w[n] - theta[n]).pow(2).sum() for n in w) - linear

            finals[k] = train_by_hand(fed, theta, round, k, penalty=penalty)
        g = [
            {n: g[k][n] - alpha * (finals[k][n] - theta[n]) for n in h} if k in finals else g[k] for k in range(clients)
        ]
        h = {n: h[n] - alpha / clients * sum(final[n] - theta[n] for final in finals.values()) for n in h}
        theta = {n: sum(f[n] for f in finals.values()) / len(finals) - h[n] / alpha for n in h}
        torch.testing.assert_close(snap.model, theta, rtol=1e-10, atol=1e-11)


def test_clients_that_agree_stand_at_the_optimum_of_all() -> None:
    """Losses a/2 (w - b)^2, solved exactly by each client. FedAvg ends at the mean of b, 2; the optimum is 1.3."""
    part, curvature, centre = DynamicRegularisation(alpha=0.5), (8.0, 1.0, 1.0), (1.0, 1.0, 4.0)
    best = sum(a * b for a, b in zip(curvature, centre)) / sum(curvature)
    state = server({"w": number(0.0), "s": number(0.0)}, {"w": number(0.0)}, clients=3)
    d = [0.0] * 3
    for _ in range(200):
        w, sent = float(state.model["w"]), []
        for k, (a, b) in enumerate(zip(curvature, centre)):
            final = (a * b + part.alpha * (w - d[k])) / (a + part.alpha)
            message, own = part.up(end_of(w, final, d[k]))
            d[k] = float(own["w"])
            sent.append((1, message))
        state = part.merge(state, gather(part, sent))
    assert best == pytest.approx(1.3)
    assert float(state.model["w"]) == pytest.approx(best, rel=1e-9)
    assert [-part.alpha * x for x in d] == pytest.approx([a * (best - b) for a, b in zip(curvature, centre)], rel=1e-6)


def test_running_statistics_take_the_plain_mean_by_rows() -> None:
    fed = federation("feddyn", norm=True, local=LOCAL)
    (snap, _), *_ = run_rounds(fed, 1)
    sent = [(fed.rows[int(k)], m["dyn"]["statistics"]) for k, m in messages(snap).items()]
    for name in sent[0][1]:
        if fed.model.roles[name] != "counter":
            mean = sum(n * s[name] for n, s in sent) / sum(n for n, _ in sent)
            torch.testing.assert_close(snap.model[name], mean, rtol=1e-12, atol=1e-13)
