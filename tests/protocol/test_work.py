"""Schedules, steps, effective steps, optimisers on stacked leaves, and clipping per client."""

from typing import Any

import pytest
import torch
from torch import Tensor

from unskew.client.round import optimiser_step
from unskew.config.experiment import LocalConfig
from unskew.protocol.optimiser import GradientRule, optimiser_slots
from unskew.protocol.work import Work, clip_gradients

FEDLMD = {"lr": 0.01, "schedule": {"name": "exponential", "rate": 0.99}}
FLEA = {"lr": 1e-3, "schedule": {"name": "exponential", "rate": 0.98}, "floor": 1e-5}
FLEA_CODE = {"lr": 1e-3, "schedule": {"name": "linear", "slope": 0.018}, "floor": 1e-4}


@pytest.mark.parametrize(
    ("config", "round", "want"),
    [
        (FEDLMD, 1, 0.01),
        (FEDLMD, 100, 3.697e-3),  # 0.01 * 0.99^99
        (FEDLMD, 200, 1.353e-3),  # 0.01 * 0.99^199
        (FLEA, 1, 1e-3),
        (FLEA, 100, 1.353e-4),  # t = 99: 1e-3 * 0.98^99
        (FLEA_CODE, 1, 1e-3),
        (FLEA_CODE, 2, 9.82e-4),
        (FLEA_CODE, 50, 1.18e-4),  # t = 49: 1e-3 * (1 - 0.882)
        (FLEA_CODE, 51, 1e-4),
        (FLEA_CODE, 100, 1e-4),
        ({"lr": 0.1, "schedule": "constant"}, 77, 0.1),
        ({"lr": 0.1, "schedule": "cosine"}, 101, 0.05),  # half way through 200 rounds
    ],
)
def test_learning_rate_of_a_round(config: dict[str, Any], round: int, want: float) -> None:
    assert LocalConfig(**config).lr_at(round, 200) == pytest.approx(want, rel=4e-4)


def test_the_rate_never_falls_below_the_floor() -> None:
    """1e-3 * 0.98^t is below 1e-5 from t = 228 on."""
    local = LocalConfig(**FLEA)
    assert local.lr_at(228, 500) > 1e-5
    assert local.lr_at(229, 500) == local.lr_at(500, 500) == 1e-5


def test_work_of_a_round_carries_the_decayed_rate() -> None:
    work = LocalConfig(**FEDLMD, batch=7, epochs=3, clip=2.0, scope="step").work(100, 200)
    assert work.lr == pytest.approx(0.01 * 0.99**99)
    assert (work.batch, work.epochs, work.clip, work.scope) == (7, 3, 2.0, "step")


@pytest.mark.parametrize(
    ("rows", "keys", "steps"),
    [
        (8, {"epochs": 2}, 4),
        (9, {"epochs": 2}, 6),  # 4 + 4 + 1, twice
        (3, {"epochs": 2}, 2),
        (0, {"epochs": 2}, 0),
        (9, {"epochs": 2, "steps": 5}, 5),
        (1, {"epochs": 1, "steps": 5}, 5),
        (0, {"epochs": 1, "steps": 5}, 0),
    ],
)
def test_steps_for_rows(rows: int, keys: dict[str, int], steps: int) -> None:
    assert Work(batch=4, lr=0.1, **keys).steps_for(rows) == steps


@pytest.mark.parametrize(("steps", "want"), [(1, 1.0), (2, 2.9), (10, 41.381060)])
def test_effective_steps_at_momentum(steps: int, want: float) -> None:
    """sum over j of (1 - 0.9^j) / 0.1: 1, 1 + 1.9, ..."""
    assert Work(batch=1, lr=0.3, momentum=0.9).effective_steps(steps) == pytest.approx(want, abs=5e-7)


def test_effective_steps_are_steps_without_momentum() -> None:
    assert Work(batch=1, lr=0.3).effective_steps(17) == 17


@pytest.mark.parametrize("steps", [1, 2, 10])
@pytest.mark.parametrize(
    "keys",
    [
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "scope": "step"},
        {"momentum": 0.9, "nesterov": True, "scope": "step"},
    ],
)
def test_effective_steps_are_the_distance_moved_by_unit_gradients(keys: dict[str, Any], steps: int) -> None:
    """loss = w has gradient 1; at learning rate 1 the distance is a_k."""
    work, w = Work(batch=1, lr=1.0, **keys), torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = work.make_optimiser([w])
    for _ in range(steps):
        optimiser_step(w * 1.0, optimiser, work, stacked=False)
    assert -w.item() == pytest.approx(work.effective_steps(steps), rel=1e-12)


@pytest.mark.parametrize("slope", [3.0, 0.003])
def test_adam_reset_at_each_step_is_sign_descent(slope: float) -> None:
    """lr g / (|g| + 1e-8) at every step, so five steps move by five times lr whatever the slope."""
    work = Work(batch=1, lr=0.01, optimiser="adam", scope="step")
    w = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = work.make_optimiser([w])
    for step in range(1, 6):
        optimiser_step(slope * w, optimiser, work, stacked=False)
        assert w.item() == pytest.approx(-0.01 * step, rel=1e-5)


def test_adam_with_its_state_kept_is_not_sign_descent() -> None:
    """Gradients 1 then -1: with its moments kept, Adam's second step is much shorter than lr."""
    work, w = Work(batch=1, lr=0.01, optimiser="adam"), torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = work.make_optimiser([w])
    optimiser_step(w * 1.0, optimiser, work, stacked=False)
    first = w.item()
    optimiser_step(w * -1.0, optimiser, work, stacked=False)
    assert first == pytest.approx(-0.01, rel=1e-5)
    assert abs(w.item() - first) < 0.002


def gradients(seed: int = 0) -> dict[str, Tensor]:
    """Gradients of three clients for a matrix and a vector; the second client's are large."""
    gen = torch.Generator().manual_seed(seed)
    scale = torch.tensor([0.1, 50.0, 3.0], dtype=torch.float64)
    return {
        "a": torch.randn(3, 4, 5, generator=gen, dtype=torch.float64) * scale[:, None, None],
        "b": torch.randn(3, 2, generator=gen, dtype=torch.float64) * scale[:, None],
    }


def clipped(grads: dict[str, Tensor], limit: float, stacked: bool) -> dict[str, Tensor]:
    return dict(zip(grads, clip_gradients(list(grads.values()), limit, stacked)))


def test_clipping_gives_the_numbers_computed_by_hand() -> None:
    """Gradient (3, 4) and (12) has norm 13: at limit 6.5 it is halved, at limit 13 it stays."""
    grads = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([12.0])}
    assert {k: g.tolist() for k, g in clipped(grads, 6.5, False).items()} == {"a": [1.5, 2.0], "b": [6.0]}
    assert {k: g.tolist() for k, g in clipped(grads, 13.0, False).items()} == {"a": [3.0, 4.0], "b": [12.0]}


def test_clipping_a_stack_equals_clipping_each_client() -> None:
    grads = gradients()
    together = clipped(grads, 1.0, True)
    for k in range(3):
        single = clipped({name: grad[k] for name, grad in grads.items()}, 1.0, False)
        for name in grads:
            torch.testing.assert_close(together[name][k], single[name], rtol=1e-14, atol=0)
    norms = torch.stack([together["a"].flatten(1), torch.zeros(3, 20)]).pow(2).sum((0, 2)) + together["b"].pow(2).sum(1)
    assert norms.sqrt()[1:].tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("other", [0.0, 1e9, float("inf"), float("nan")])
def test_one_clients_gradient_does_not_affect_clipping_of_the_others(other: float) -> None:
    """Whatever client 1's gradient is, the others' keep every bit, also the one below the limit."""
    grads = gradients()
    changed = {name: grad.clone() for name, grad in grads.items()}
    for grad in changed.values():
        grad[1] = other
    a, b = clipped(grads, 1.0, True), clipped(changed, 1.0, True)
    for name in grads:
        assert torch.equal(a[name][[0, 2]], b[name][[0, 2]])
        assert torch.equal(a[name][0], grads[name][0])


def test_a_stack_of_scalars_is_clipped_per_client() -> None:
    """A model may have a 0-dim parameter: on the stack it is a vector with one number per client."""
    grads = {"a": torch.tensor([[3.0], [30.0]]), "s": torch.tensor([4.0, 40.0])}
    actual = clipped(grads, 5.0, True)
    assert actual["s"].tolist() == pytest.approx([4.0, 4.0])
    assert actual["a"].flatten().tolist() == pytest.approx([3.0, 3.0])


def test_clipping_leaves_zero_and_missing_gradients_unchanged() -> None:
    assert clipped({}, 1.0, False) == {}
    assert clipped({"a": torch.zeros(2, 3)}, 1.0, True)["a"].tolist() == [[0.0] * 3] * 2


OPTIMISERS = [
    {"optimiser": "sgd"},
    {"optimiser": "sgd", "momentum": 0.9, "weight_decay": 0.01},
    {"optimiser": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"optimiser": "sgd", "momentum": 0.9, "clip": 1.0},
    {"optimiser": "adam", "weight_decay": 0.01},
    {"optimiser": "adam", "betas": (0.5, 0.9), "scope": "step"},
    {"optimiser": "adamw", "weight_decay": 0.1, "clip": 1.0},
]


def after_six_steps(work: Work, leaves: dict[str, Tensor], stacked: bool, pick: int | slice) -> dict[str, Tensor]:
    """The leaves after six steps with gradients that differ by client and step."""
    optimiser = work.make_optimiser(leaves.values())
    for step in range(6):
        grads = {name: grad[pick] for name, grad in gradients(step).items()}
        loss = sum((leaf * grads[name]).sum() for name, leaf in leaves.items())
        optimiser_step(loss, optimiser, work, stacked)
    return {name: leaf.detach() for name, leaf in leaves.items()}


@pytest.mark.parametrize("keys", OPTIMISERS)
def test_one_optimiser_on_a_stack_equals_one_per_client(keys: dict[str, Any]) -> None:
    work, start = Work(batch=1, lr=0.05, **keys), gradients(99)
    together = after_six_steps(work, {n: t.clone().requires_grad_() for n, t in start.items()}, True, slice(None))
    for k in range(3):
        single = after_six_steps(work, {n: t[k].clone().requires_grad_() for n, t in start.items()}, False, k)
        for name in start:
            torch.testing.assert_close(together[name][k], single[name], rtol=1e-13, atol=1e-15)


class TorchOptimiser:
    """The reference: an optimiser class of torch.optim."""

    def __init__(self, work: Work, leaves: list[Tensor]) -> None:
        self.leaves = leaves
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[work.optimiser]
        sgd: dict[str, Any] = {"momentum": work.momentum, "nesterov": work.nesterov}
        more = sgd if work.optimiser == "sgd" else {"betas": work.betas}
        self.optimiser = kind(leaves, work.lr, weight_decay=work.weight_decay, **more)
        self.state = self.optimiser.state

    def gradients(self, loss: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(loss, self.leaves))

    def step(self, grads: list[Tensor]) -> None:
        for leaf, grad in zip(self.leaves, grads):
            leaf.grad = grad
        self.optimiser.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("keys", OPTIMISERS)
def test_optimisers_equal_those_of_torch_bit_for_bit(keys: dict[str, Any], dtype: torch.dtype) -> None:
    work, actual = Work(batch=1, lr=0.05, **keys), []
    for make in (work.make_optimiser, lambda leaves: TorchOptimiser(work, leaves)):
        leaves = {name: t.to(dtype).requires_grad_() for name, t in gradients(99).items()}
        optimiser = make(list(leaves.values()))
        for step in range(6):
            loss = sum((leaf * g.to(dtype)).sum() for leaf, g in zip(leaves.values(), gradients(step).values()))
            optimiser_step(loss, optimiser, work, stacked=False)
        actual.append(leaves)
    assert all(torch.equal(actual[0][name], actual[1][name]) for name in actual[0])
    assert not torch.equal(actual[0]["a"], gradients(99)["a"].to(dtype))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_engine_can_replace_torchs_sgd(momentum: float) -> None:
    """Its function gets the same arguments as torch's `sgd`, and the velocities that it creates are kept."""
    work, calls = Work(batch=1, lr=0.05, momentum=momentum, weight_decay=0.01), list[Any]()

    def engine_sgd(leaves: list[Tensor], grads: list[Tensor], velocities: list[Tensor | None], **keys: Any) -> None:
        calls.append((leaves, grads, list(velocities), keys))
        velocities[:] = [torch.full_like(leaf, 3.0) for leaf in leaves] if keys["momentum"] else []

    leaf, actual = torch.zeros(2, 3, requires_grad=True), object()
    optimiser = work.make_optimiser([leaf], gradient_rule=GradientRule(lambda loss, leaves: [actual], engine_sgd))
    for _ in range(2):
        optimiser.step(optimiser.gradients(leaf.sum()))
    (leaves, grads, before, keys), (_, _, after, _) = calls
    assert leaves[0] is leaf
    assert grads == [actual]
    assert leaf.sum() == 0
    assert keys == {
        "lr": 0.05, "momentum": momentum, "weight_decay": 0.01, "nesterov": False,
        "dampening": 0.0, "maximize": False, "fused": None,
    }  # fmt: skip
    assert (before, [t.sum().item() for t in after]) == (([None], [18.0]) if momentum else ([], []))


def test_unused_parameter_still_decays() -> None:
    """A leaf that no loss uses has gradient 0, as in PyTorch with zero_grad(set_to_none=False): 1 - 0.1*0.5."""
    work = Work(batch=1, lr=0.1, weight_decay=0.5)
    used, idle = (torch.ones((), dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimiser_step(used * 1.0, work.make_optimiser([used, idle]), work, stacked=False)
    assert idle.item() == pytest.approx(0.95)


@pytest.mark.parametrize(
    "kind",
    [{"momentum": 0.9, "weight_decay": 1e-3}, {}, {"momentum": 0.9, "nesterov": True}, {"optimiser": "adamw"}],
    ids=["momentum", "plain", "nesterov", "adamw"],
)
def test_preallocated_slots_and_a_rate_in_a_tensor_change_nothing(kind: dict) -> None:
    """The CPU form of a step captured in a CUDA graph: one kernel for all leaves, the rate read from memory."""
    work, results = Work(batch=1, lr=0.1, **kind), []
    for fused in (False, True):
        torch.manual_seed(0)
        leaves = [torch.randn(3, 4, requires_grad=True), torch.randn(2, requires_grad=True)]
        optimiser = work.make_optimiser(leaves, [optimiser_slots(work, leaf) for leaf in leaves] if fused else ())
        rate = torch.tensor(work.lr)
        if fused:
            optimiser._fused, optimiser.lr = True, rate
        for step, lr in enumerate((0.1, 0.1, 0.05)):
            rate.fill_(lr)
            optimiser.lr = rate if fused else lr
            optimiser.step([torch.sin(leaf.detach() * (step + 1)) for leaf in leaves])
        results.append(torch.cat([leaf.detach().flatten() for leaf in leaves]))
    torch.testing.assert_close(*results)
