"""SCAFFOLD, option II: the variates by hand, their invariant, and rounds against plain PyTorch."""

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

from unskew.base.errors import UserError
from unskew.base.tree import State
from unskew.methods.scaffold import Scaffold
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts, End
from unskew.protocol.work import Work


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def end_of(final: float, steps: float, effective: float, c: float = 0.0, part_state: float = 0.0) -> End:
    """A client that went from w = 1 to `final` at learning rate 0.1; "s" is a running statistic."""
    return End(
        start={"w": number(1.0), "s": number(0.0)},
        final={"w": number(final), "s": number(5.0)},
        part_state={"w": number(part_state)},
        received={"c": {"w": number(c)}},
        facts=ClientFacts(number(1.0), torch.ones(3)),
        steps=number(steps),
        effective_steps=number(effective),
        lr=number(0.1),
        parameters=("w",),
    )


def variates(fed: object, clients: int) -> list[State]:
    return [fed.store.get(k)["scaffold"] for k in range(clients)]  # type: ignore[attr-defined]


@pytest.mark.papers
def test_variates_match_a_calculation_by_hand() -> None:
    """K = 4, eta = 0.1, tau = 5, w = 1: c_0 = 0.5/0.5 = 1, c_1 = 0.1/0.5 = 0.2, c = 1.2/4 = 0.3."""
    part = Scaffold()
    (sent_0, c_0), (sent_1, c_1) = (part.up(end_of(w, 5, 5)) for w in (0.5, 0.9))
    assert [float(c_0["w"]), float(c_1["w"])] == pytest.approx([1.0, 0.2], rel=1e-14)
    before = server({"w": number(1.0)}, {"w": number(0.0)}, clients=4)
    after = part.merge(before, gather(part, [(1, sent_0), (30, sent_1)]))
    assert float(after.part_state["w"]) == pytest.approx(0.3, rel=1e-14)
    assert after.model is before.model


def test_variate_of_the_second_visit_matches_a_calculation_by_hand() -> None:
    """c = 0.3, c_k = 1, from 1 to 0.6 in 5 steps: c_k+ = 1 - 0.3 + 0.4/0.5 = 1.5, dc = 0.5."""
    sent, c_k = Scaffold().up(end_of(0.6, 5, 5, c=0.3, part_state=1.0))
    assert float(c_k["w"]) == pytest.approx(1.5, rel=1e-14)
    assert float(sent["dc"]["w"]) == pytest.approx(0.5, rel=1e-14)


def test_with_momentum_the_variate_divides_by_effective_steps() -> None:
    """Two steps at momentum 0.9 count 2.9: (1 - 0.42) / (0.1 * 2.9) = 2."""
    _, c_k = Scaffold().up(end_of(0.42, 2, Work(batch=1, lr=0.1, momentum=0.9).effective_steps(2)))
    assert float(c_k["w"]) == pytest.approx(2.0, rel=1e-14)


def test_running_statistics_have_no_variate() -> None:
    sent, c_k = Scaffold().up(end_of(0.5, 5, 5))
    assert set(c_k) == set(sent["dc"]) == {"w"}
    fed = federation("scaffold", norm=True)
    assert set(fed.start().parts["scaffold"]) == set(fed.store.get(0)["scaffold"]) == set(fed.model.parameters)


def test_gradient_of_the_loss_is_c_minus_c_k() -> None:
    model = Model(network(), dtype=torch.float64)
    leaves, gen = leaves_of(model), torch.Generator().manual_seed(2)
    c, c_k = ({n: torch.randn(w.shape, generator=gen, dtype=w.dtype) for n, w in leaves.items()} for _ in range(2))
    x = torch.zeros(2, 5, dtype=torch.float64)
    loss = Scaffold().loss(view_of(model, leaves, x, torch.tensor([0, 1]), received={"c": c}, part_state=c_k))
    for name, gradient in zip(leaves, torch.autograd.grad(loss, leaves.values())):
        assert torch.equal(gradient, c[name] - c_k[name])


@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_server_variate_is_the_mean_of_all_clients(participation: float) -> None:
    """c = 1/K sum c_k after every round; clients that were not sampled yet have c_k = 0."""
    fed = federation("scaffold", participation=participation, rounds=6)
    chosen = set()
    for snap, _ in run_rounds(fed, 6):
        chosen.add(tuple(messages(snap)))
        c_of_clients = variates(fed, len(SIZES))
        mean = {name: sum(c[name] for c in c_of_clients) / len(c_of_clients) for name in c_of_clients[0]}
        torch.testing.assert_close(snap.parts["scaffold"], mean, rtol=1e-11, atol=1e-12)
        assert any(c.abs().max() > 1e-3 for c in mean.values())
    assert len(chosen) > (participation < 1)  # with half of the clients, the sample changes between rounds


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rounds_equal_plain_pytorch(momentum: float) -> None:
    """Momentum uses g - c_k + c; the round's eta and a_k divide; models are averaged by rows."""
    fed = federation("scaffold", local=LOCAL | {"momentum": momentum})
    w = fed.start().model
    zero = {name: torch.zeros_like(w[name]) for name in fed.model.parameters}
    c, c_of_clients = zero, [zero] * len(SIZES)
    for round, (snap, _) in enumerate(run_rounds(fed, 3), 1):
        finals, new_c = [], []
        for k, c_k in enumerate(c_of_clients):
            final = train_by_hand(fed, w, round, k, {n: c[n] - c_k[n] for n in c})
            tau = 2 * -(-SIZES[k] // 4)
            a = sum(sum(momentum**i for i in range(j)) for j in range(1, tau + 1))
            eta = 0.1 * 0.99 ** (round - 1)
            new_c.append({n: c_k[n] - c[n] + (w[n] - final[n]) / (eta * a) for n in c})
            finals.append(final)
        c = {n: c[n] + sum(b[n] - a[n] for a, b in zip(c_of_clients, new_c)) / len(SIZES) for n in c}
        w, c_of_clients = {n: sum(s * f[n] for s, f in zip(SIZES, finals)) / sum(SIZES) for n in w}, new_c
        torch.testing.assert_close(snap.model, w, rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(snap.parts["scaffold"], c, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_first_round_is_fedavg_bit_for_bit(precision: str) -> None:
    scaffold, plain = (federation(name, precision=precision) for name in ("scaffold", "fedavg"))
    assert equal(last_model(scaffold, 1), last_model(plain, 1))


def test_second_round_is_not_fedavg() -> None:
    scaffold, plain = (federation(name) for name in ("scaffold", "fedavg"))
    assert not equal(last_model(scaffold, 2), last_model(plain, 2))


def test_traffic_doubles_in_both_directions() -> None:
    """57 parameters of 8 bytes: down w and c, up w and dc and an 8-byte count, for each of four clients."""
    ((snap, _),) = run_rounds(federation("scaffold"), 1)
    assert snap.ledger.bytes_down == 4 * 2 * 57 * 8
    assert snap.ledger.bytes_up == 4 * (2 * 57 * 8 + 8)


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_adaptive_optimisers_are_refused(optimiser: str) -> None:
    with pytest.raises(UserError, match=f"scaffold: expected local.optimiser: sgd, found {optimiser}"):
        federation("scaffold", local={"optimiser": optimiser})
