"""Methods with further passes through the net, on images: other layers and layouts give the plain engine's numbers."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unskew as us
from unskew.base.tree import State
from unskew.engines.stacked import cohort_memory, cohort_stack
from unskew.engines.stacked import stacked_engine as stacked
from unskew.runner.prepare_run import prepare
from unskew.server.federation import Federation
from unskew.wire.message import CohortReply

METHODS: dict[str, Any] = {
    "flea": ["flea", {"flea": {"fraction": 0.5}}],
    "flea-released": ["flea", {"flea": {"fraction": 0.5, "preset": "released"}}],
    "fedmix-naive": ["fedmix", {"mix": {"group": 2}}],
    "fedmix-taylor": ["fedmix", {"mix": {"group": 2, "variant": "taylor", "lam": 0.2}}],
    "feddata": ["feddata", {"pool": {"fraction": 0.5}}],
}


def network() -> nn.Sequential:
    """Every kind of layer that the stacked engine has a rule for, fused where it fuses."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        first = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1))
        third = nn.Sequential(nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(first, second, third, nn.Linear(6, 3))


def federation(method: Any, engine: str, **keys: Any) -> Federation:
    gen, sizes = np.random.default_rng(3), (11, 4, 6)
    x = gen.normal(size=(sum(sizes), 2, 6, 6)).astype("float32")
    y = np.arange(sum(sizes)) % 3
    data = us.from_arrays(x, y, x_test=x, y_test=y, group=np.repeat(np.arange(3), sizes))
    local = {"epochs": 2, "batch": 4, "lr": 0.05, "optimiser": "adam", "weight_decay": 0}
    experiment = us.Experiment(
        method=method, partition={"name": "group"}, rounds=3, precision="float64", local=local, device="cpu",
        engine={"name": engine, "workers": 1}, **keys,
    )  # fmt: skip
    return prepare(experiment, data=data, model=network()).federation


def after_three_rounds(method: Any, engine: str, **keys: Any) -> State:
    fed = federation(method, engine, **keys)
    snap = fed.start()
    for _ in range(3):
        snap, _ = fed.play(snap)
        fed.store.commit()
    return snap.model


def equal_ends(method: Any, **keys: Any) -> State:
    """The plain engine's model after three rounds, which the others must have too."""
    plain = after_three_rounds(method, "plain", **keys)
    for engine in ("loop", "stacked"):
        found = after_three_rounds(method, engine, **keys)
        for key in plain:
            name = f"{engine}, {key}"
            torch.testing.assert_close(found[key], plain[key], rtol=1e-6, atol=1e-8, msg=lambda t, n=name: f"{n}: {t}")
    return plain


@pytest.mark.parametrize("name", METHODS)
def test_every_engine_equals_plain_on_images(name: str) -> None:
    equal_ends(METHODS[name])


@pytest.mark.parametrize("method", ["fedavg", "flea"])
def test_every_engine_equals_plain_with_groupnorm_on_several_channels(method: str) -> None:
    """PyTorch's GroupNorm refuses channels-last rows, which the loop engine uses, inside a stack."""
    equal_ends(method, model={"batchnorm": "group"})


def test_a_cohorts_messages_are_gone_when_the_next_one_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a view of all of them, so that one that is kept keeps the memory of the whole cohort."""
    fed, seen, alive = federation("fedavg", "stacked"), [], []
    fed.engine.limit = 1  # type: ignore[attr-defined]
    cohort = stacked.StackedEngine._cohort

    def watched(self: Any, *args: Any) -> CohortReply:
        gc.collect()
        alive.append([ref() is not None for ref in seen])
        found = cohort(self, *args)
        weights = next(iter(found.message["average"].values()))["3.weight"]
        seen.append(weakref.ref(weights if weights._base is None else weights._base))
        return found

    monkeypatch.setattr(stacked.StackedEngine, "_cohort", watched)
    fed.play(fed.start())
    assert alive == [[], [False], [False, False]]


class PerSample(us.Part):
    """The squared norm of every row's own gradient, for which a loss maps and differentiates once more."""

    def loss(self, view: us.View) -> Tensor:
        buffers = {name: view.start[name] for name in view.model.buffers}

        def one(parameters: State, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(view.model.run(parameters | buffers, x[None]), y[None])

        each = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))(view.parameters, view.x, view.y)
        return 0.1 * view.mean(sum(g.flatten(1).square().sum(1) for g in each.values()))


def test_gradients_of_every_row_inside_a_loss(spy: Any) -> None:
    penalised, fedavg = equal_ends(spy(PerSample)), after_three_rounds("fedavg", "loop")
    assert not torch.allclose(fedavg["3.weight"], penalised["3.weight"], rtol=1e-3)


@pytest.mark.parametrize("method", ["fedavg", "fedlmd", "moon"])
def test_a_client_is_measured_as_the_stack_will_keep_it(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cohort's first step keeps for its backward pass; outside of a stack layers keep other tensors."""
    measured, kept = [], []
    step = cohort_stack._WidthStep._step

    def measure(one: Any) -> int:
        measured.append(cohort_memory.bytes_of_step(one))
        return measured[-1]

    def count(lane: Any) -> None:
        kept.append(cohort_memory.bytes_of_step(lambda: step(lane)) / lane.width)

    monkeypatch.setattr(stacked, "bytes_of_step", measure)
    monkeypatch.setattr(cohort_stack._WidthStep, "_step", count)
    fed = federation(method, "stacked")
    fed.play(fed.start())
    assert measured == [pytest.approx(kept[0], rel=0.05)]
