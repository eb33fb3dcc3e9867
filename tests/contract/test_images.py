"""Methods with further forward passes, on images: every engine gives the plain engine's numbers."""

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
from unskew.wire.requests_and_replies import CohortReply

METHODS: dict[str, Any] = {
    "flea": ["flea", {"flea": {"fraction": 0.5}}],
    "flea-released": ["flea", {"flea": {"fraction": 0.5, "rules": "released"}}],
    "fedmix-naive": ["fedmix", {"mix": {"group": 2}}],
    "fedmix-taylor": ["fedmix", {"mix": {"group": 2, "variant": "taylor", "lam": 0.2}}],
    "feddata": ["feddata", {"pool": {"fraction": 0.5}}],
}


def network() -> nn.Sequential:
    """Every kind of layer that the stacked engine supports, some of which it fuses."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        first = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1))
        third = nn.Sequential(nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(first, second, third, nn.Linear(6, 3))


def federation(method: Any, engine: str, **settings: Any) -> Federation:
    gen, sizes = np.random.default_rng(3), (11, 4, 6)
    x = gen.normal(size=(sum(sizes), 2, 6, 6)).astype("float32")
    y = np.arange(sum(sizes)) % 3
    data = us.from_arrays(x, y, x_test=x, y_test=y, group=np.repeat(np.arange(3), sizes))
    local = {"epochs": 2, "batch": 4, "lr": 0.05, "optimiser": "adam", "weight_decay": 0}
    experiment = us.Experiment(
        method=method, partition={"name": "group"}, rounds=3, precision="float64", local=local, device="cpu",
        engine={"name": engine, "workers": 1}, **settings,
    )  # fmt: skip
    return prepare(experiment, data=data, model=network()).federation


def after_three_rounds(method: Any, engine: str, **settings: Any) -> State:
    fed = federation(method, engine, **settings)
    snap = fed.start()
    for _ in range(3):
        snap, _ = fed.run_round(snap)
        fed.store.commit()
    return snap.model


def compare_engines(method: Any, **settings: Any) -> State:
    """The plain engine's model after three rounds, to which the other engines' models are compared."""
    plain = after_three_rounds(method, "plain", **settings)
    for engine in ("loop", "stacked"):
        model = after_three_rounds(method, engine, **settings)
        for key in plain:
            name = f"{engine}, {key}"
            torch.testing.assert_close(model[key], plain[key], rtol=1e-6, atol=1e-8, msg=lambda t, n=name: f"{n}: {t}")
    return plain


@pytest.mark.parametrize("name", METHODS)
def test_every_engine_equals_plain_on_images(name: str) -> None:
    compare_engines(METHODS[name])


@pytest.mark.parametrize("method", ["fedavg", "flea"])
def test_every_engine_equals_plain_with_groupnorm_on_several_channels(method: str) -> None:
    """Inside a stack PyTorch's GroupNorm refuses channels-last rows, which the loop engine uses."""
    compare_engines(method, model={"batchnorm": "group"})


def test_a_cohorts_messages_are_freed_before_the_next_one_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is a view of all, so a single reference would keep the memory of the whole cohort."""
    fed, messages, alive = federation("fedavg", "stacked"), [], []
    fed.engine.limit = 1  # type: ignore[attr-defined]
    train_cohort = stacked.StackedEngine._train_cohort

    def watched(self: Any, *args: Any) -> CohortReply:
        gc.collect()
        alive.append([ref() is not None for ref in messages])
        reply = train_cohort(self, *args)
        weights = next(iter(reply.message["average"].values()))["3.weight"]
        messages.append(weakref.ref(weights if weights._base is None else weights._base))
        return reply

    monkeypatch.setattr(stacked.StackedEngine, "_train_cohort", watched)
    fed.run_round(fed.start())
    assert alive == [[], [False], [False, False]]


class PerSample(us.Part):
    """The squared gradient norm of every row: a loss that uses vmap and grad itself."""

    def loss(self, view: us.View) -> Tensor:
        buffers = {name: view.start[name] for name in view.model.buffers}

        def loss_of_row(parameters: State, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(view.model.run(parameters | buffers, x[None]), y[None])

        gradients = torch.func.vmap(torch.func.grad(loss_of_row), in_dims=(None, 0, 0))(view.parameters, view.x, view.y)
        return 0.1 * view.mean(sum(g.flatten(1).square().sum(1) for g in gradients.values()))


def test_a_loss_may_use_gradients_of_every_row(fedavg_with: Any) -> None:
    penalised, fedavg = compare_engines(fedavg_with(PerSample)), after_three_rounds("fedavg", "loop")
    assert not torch.allclose(fedavg["3.weight"], penalised["3.weight"], rtol=1e-3)


@pytest.mark.parametrize("method", ["fedavg", "fedlmd", "moon"])
def test_measured_memory_is_that_of_a_step_in_a_stack(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensors that a cohort's first step saves for backward; outside a stack layers save others."""
    measured, saved = [], []
    step = cohort_stack._WidthStep._step

    def measure(one: Any) -> int:
        measured.append(cohort_memory.bytes_of_step(one))
        return measured[-1]

    def count(width_step: Any) -> None:
        saved.append(cohort_memory.bytes_of_step(lambda: step(width_step)) / width_step.width)

    monkeypatch.setattr(stacked, "bytes_of_step", measure)
    monkeypatch.setattr(cohort_stack._WidthStep, "_step", count)
    fed = federation(method, "stacked")
    fed.run_round(fed.start())
    assert measured == [pytest.approx(saved[0], rel=0.05)]
