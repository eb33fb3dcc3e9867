"""FedAvgM: v <- beta v + (w - mean), w <- w - v, for the trained tensors only."""

import pytest
import torch
from toolbox import equal, federation, gather, last_model, messages, run_rounds, server

from unskew.base.tree import State
from unskew.methods.fedavgm import AverageMomentum
from unskew.models.model import Model


def sent(*models: State) -> list[tuple[int, dict[str, State]]]:
    return [(1, {"weights": model}) for model in models]


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.papers
def test_two_rounds_match_a_calculation_by_hand() -> None:
    """beta 0.7, w = 1; mean 0.8: v = 0.2, w = 0.8; mean 0.7: v = 0.7*0.2 + 0.1 = 0.24, w = 0.8 - 0.24 = 0.56."""
    part = AverageMomentum(beta=0.7)
    state = server({"w": number(1.0)}, {"w": number(0.0)})
    actual = []
    for pair in ((0.6, 1.0), (0.5, 0.9)):  # their means are 0.8 and 0.7
        state = part.merge(state, gather(part, sent(*({"w": number(value)} for value in pair))))
        actual += [float(state.part_state["w"]), float(state.model["w"])]
    assert actual == pytest.approx([0.2, 0.8, 0.24, 0.56], rel=1e-14)


def test_velocity_starts_at_zero_for_trained_tensors_only() -> None:
    fed = federation("fedavgm", norm=True)
    model: Model = fed.model
    velocity = fed.start().parts["avgm"]
    assert set(velocity) == set(model.parameters)
    assert all(not v.any() for v in velocity.values())


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_beta_zero_is_fedavg_bit_for_bit(precision: str, norm: bool) -> None:
    neutral = federation([{"fedavgm": {"beta": 0.0}}], precision=precision, norm=norm)
    assert equal(last_model(neutral, 3), last_model(federation("fedavg", precision=precision, norm=norm), 3))


def test_running_statistics_and_counters_take_the_plain_mean() -> None:
    """With velocity 10 and beta 0.5 the weight ends 5 below the mean; the statistic is the mean."""
    part = AverageMomentum(beta=0.5)
    before = server({"w": number(1.0), "s": number(1.0), "n": torch.tensor(1)}, {"w": number(10.0)})
    models = ({"w": number(a), "s": number(a), "n": torch.tensor(n)} for a, n in ((2.0, 7), (4.0, 9)))
    after = part.merge(before, gather(part, sent(*models)))
    assert float(after.model["s"]) == 3.0
    assert int(after.model["n"]) == 7
    assert float(after.model["w"]) == 3.0 - 0.5 * 10.0
    assert set(after.part_state) == {"w"}


def test_rounds_follow_the_recursion() -> None:
    """Every round of a federation: v and w from the clients' own messages, beta 0.7, running statistics included."""
    fed = federation("fedavgm", norm=True)
    snap = fed.start()
    w, v = snap.model, {name: torch.zeros_like(snap.model[name]) for name in fed.model.parameters}
    for snap, _ in run_rounds(fed, 3):
        models = [(fed.rows[int(k)], m["avgm"]["weights"]) for k, m in messages(snap).items()]
        mean = {name: sum(n * m[name] for n, m in models) / sum(n for n, _ in models) for name in w}
        v = {name: 0.7 * v[name] + (w[name] - mean[name]) for name in v}
        want = {name: w[name] - v[name] if name in v else mean[name] for name in w}
        w = snap.model
        for name in w:
            if fed.model.roles[name] != "counter":
                torch.testing.assert_close(w[name], want[name], rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(snap.parts["avgm"], v, rtol=1e-11, atol=1e-13)
