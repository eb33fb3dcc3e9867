"""FedAdam, FedYogi and FedAdagrad: two rounds by hand, against torch.optim, and running statistics."""

import pytest
import torch
from toolbox import federation, gather, messages, run_rounds, server
from torch import Tensor

from unskew.base.tree import State
from unskew.methods.fedopt import ServerAdagrad, ServerAdam, ServerOptimiser, ServerYogi

TAU = 1e-3


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def merge_two_rounds(part: ServerOptimiser) -> list[float]:
    """m, v and w after means 0.8 and 0.7, from w = 1."""
    state = server({"w": number(1.0)}, {"m": {"w": number(0.0)}, "v": {"w": number(TAU**2)}})
    numbers = []
    for pair in ((0.6, 1.0), (0.5, 0.9)):
        sent: list = [(1, {"weights": {"w": number(value)}}) for value in pair]
        state = part.merge(state, gather(part, sent))
        numbers += [float(state.part_state[name]["w"]) for name in "mv"] + [float(state.model["w"])]  # type: ignore[index]
    return numbers


@pytest.mark.papers
@pytest.mark.parametrize(
    ("part", "numbers"),
    [
        (
            ServerAdam(lr=0.1),
            [-0.02, 0.00040099, 0.9048739483, -0.03848739483, 0.000816713447, 0.7747531283],
        ),
        (
            ServerYogi(lr=0.1),
            [-0.02, 0.000401, 0.904875078, -0.0384875078, 0.000820737976, 0.7750625224],
        ),
        (
            ServerAdagrad(lr=0.1),
            [-0.2, 0.040001, 0.90049875, -0.20049875, 0.08020074875, 0.829949627],
        ),
    ],
    ids=["adam", "yogi", "adagrad"],
)
def test_two_rounds_match_a_calculation_by_hand(part: ServerOptimiser, numbers: list[float]) -> None:
    """Computed in Python's floats from the paper's algorithm 2, eta 0.1."""
    assert merge_two_rounds(part) == pytest.approx(numbers, rel=1e-9)


@pytest.mark.parametrize(("v", "after"), [(1.0, 0.9996), (0.01, 0.0104), (0.04, 0.04)])
def test_yogi_moves_v_towards_the_square_by_a_share_of_the_square(v: float, after: float) -> None:
    assert float(ServerYogi().second_moment(number(v), number(0.04))) == pytest.approx(after, rel=1e-14)


def test_v_starts_at_the_square_of_tau_for_trained_tensors_only() -> None:
    fed = federation([{"fedyogi": {"tau": 0.02}}], norm=True)
    state = fed.start().parts["server-yogi"]
    assert set(state["m"]) == set(state["v"]) == set(fed.model.parameters)
    assert all((v == 0.02**2).all() for v in state["v"].values())
    assert not any(m.any() for m in state["m"].values())


@pytest.mark.papers
@pytest.mark.parametrize("norm", [False, True])
def test_adagrad_equals_that_of_pytorch_on_the_negative_update(norm: bool) -> None:
    fed = federation([{"fedadagrad": {"lr": 0.05, "tau": 0.01}}], norm=norm)
    w = fed.start().model
    names = fed.model.parameters
    leaves = [w[name].clone().requires_grad_() for name in names]
    optimiser = torch.optim.Adagrad(leaves, lr=0.05, initial_accumulator_value=0.01**2, eps=0.01)
    for snap, _ in run_rounds(fed, 3):
        mean = mean_of(snap_messages(snap, "server-adagrad"), fed.rows)
        for name, leaf in zip(names, leaves):
            leaf.grad = leaf.detach() - mean[name]
        optimiser.step()
        for name, leaf in zip(names, leaves):
            torch.testing.assert_close(snap.model[name], leaf.detach(), rtol=1e-11, atol=1e-13)
        for name in set(w) - set(names):  # running statistics
            if fed.model.roles[name] != "counter":
                torch.testing.assert_close(snap.model[name], mean[name], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("method", ["fedadam", "fedyogi"])
def test_rounds_follow_the_recursion(method: str) -> None:
    part = method.replace("fed", "server-")
    fed = federation(method, norm=True)
    w = fed.start().model
    m = {name: torch.zeros_like(w[name]) for name in fed.model.parameters}
    v = {name: torch.full_like(w[name], TAU**2) for name in fed.model.parameters}
    for snap, _ in run_rounds(fed, 3):
        mean = mean_of(snap_messages(snap, part), fed.rows)
        for name in m:
            delta = mean[name] - w[name]
            m[name] = 0.9 * m[name] + 0.1 * delta
            change = (
                0.01 * (delta**2 - v[name]) if method == "fedadam" else 0.01 * delta**2 * (delta**2 - v[name]).sign()
            )
            v[name] = v[name] + change
            want = w[name] + 0.01 * m[name] / (v[name].sqrt() + TAU)
            torch.testing.assert_close(snap.model[name], want, rtol=1e-10, atol=1e-12)
        w = snap.model


def snap_messages(snap: object, part: str) -> list[tuple[int, State]]:
    return [(int(k), m[part]["weights"]) for k, m in messages(snap).items()]  # type: ignore[arg-type]


def mean_of(models: list[tuple[int, State]], rows: object) -> State:
    total = sum(rows[k] for k, _ in models)  # type: ignore[index]
    return {name: sum(rows[k] * m[name] for k, m in models) / total for name in models[0][1]}  # type: ignore[index]
