"""The stacked engine trains clients together, fits into memory, and computes little padding."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from small import LOCAL, SIZES, federation
from test_lowrank_grad import dense_sgd

from unskew.base.tree import State
from unskew.client import feed
from unskew.engines.stacked import cohort_memory, cohort_stack, kernels
from unskew.engines.stacked import stacked_engine as stacked
from unskew.engines.stacked.prefetch import Prefetch
from unskew.models.model import Model
from unskew.server.federation import Federation

STEPS = [2 * -(-rows // 4) for rows in SIZES]


def train_calls(fed: Federation, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How often the first block ran in train and in eval mode during one round's training."""
    calls = {True: 0, False: 0}
    block = Model.block

    def counted(self: Model, state: State, h: Any, i: int, *, train: bool, seed: Any = None) -> Any:
        calls[train] += i == 0
        return block(self, state, h, i, train=train, seed=seed)

    received, states = fed.received(fed.start()), {k: fed.store.get(k) for k in range(3)}
    list(fed.engine.train(1, received, [0, 1, 2], states.__getitem__))  # the first cohort also measures memory
    with monkeypatch.context() as patch:
        patch.setattr(Model, "block", counted)
        list(fed.engine.train(1, received, [0, 1, 2], states.__getitem__))
    return calls[True], calls[False]


def test_one_model_call_per_step_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    assert train_calls(federation("fedavg", "stacked"), monkeypatch) == (max(STEPS), 0)
    assert train_calls(federation("fedavg", "loop"), monkeypatch) == (sum(STEPS), 0)


def test_moon_runs_two_more_frozen_models_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert train_calls(federation("moon", "stacked"), monkeypatch) == (max(STEPS), 2 * max(STEPS))


def one_round(fed: Federation) -> State:
    snap, _ = fed.run_round(fed.start())
    return snap.model


@pytest.mark.parametrize("size", [1, 2])
def test_cohort_is_split_to_fit_into_memory(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for `size` clients: a budget from the measured need of one client and the engine's share."""
    full = federation("moon", "stacked", norm=True)
    expected, needs, cohorts = one_round(full), [], []
    measured, train = stacked.cohort_size, stacked.StackedEngine._train_cohort

    def size_for_limited_memory(per_client: int, budget: int) -> int:
        needs.append(per_client)
        return measured(per_client, int(2 * size * per_client / cohort_memory.MEMORY_SHARE) + 1)

    def recorded(self: Any, source: Any, round: int, received: Any, clients: list[int], states: Any) -> Any:
        cohorts.append(len(clients))
        return train(self, source, round, received, clients, states)

    monkeypatch.setattr(stacked, "cohort_size", size_for_limited_memory)
    monkeypatch.setattr(stacked.StackedEngine, "_train_cohort", recorded)
    model = one_round(federation("moon", "stacked", norm=True))
    weights = sum(t.numel() * t.element_size() for t in full.model.initial.values())
    assert needs[0] > 7 * weights
    assert max(cohorts) == size
    torch.testing.assert_close(model, expected, rtol=1e-12, atol=1e-14)


def test_cohort_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = one_round(federation("scaffold", "stacked"))
    train, cohorts = stacked.StackedEngine._train_cohort, []

    def limited_memory(self: Any, source: Any, round: int, received: Any, clients: list[int], states: Any) -> Any:
        cohorts.append(len(clients))
        if len(clients) > 1:
            raise torch.OutOfMemoryError
        return train(self, source, round, received, clients, states)

    monkeypatch.setattr(stacked.StackedEngine, "_train_cohort", limited_memory)
    model = one_round(federation("scaffold", "stacked"))
    assert cohorts == [3, 1, 2, 1, 1]
    torch.testing.assert_close(model, expected, rtol=1e-12, atol=1e-14)


def test_memory_of_a_failed_cohort_is_freed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed stack is freed before half of it is tried: neither the engine nor the traceback refers to it."""
    train, failed, alive = cohort_stack.CohortStack.train, [], []

    def limited_memory(self: cohort_stack.CohortStack, work: Any, given: Any, feed: Any) -> Any:
        if len(feed.clients) > 2:
            failed.append(weakref.ref(self))
            raise torch.OutOfMemoryError
        alive.append(failed[0]() is not None)
        return train(self, work, given, feed)

    expected = one_round(federation("scaffold", "stacked"))
    monkeypatch.setattr(cohort_stack.CohortStack, "train", limited_memory)
    torch.testing.assert_close(one_round(federation("scaffold", "stacked")), expected, rtol=1e-12, atol=1e-14)
    assert (len(failed), alive) == (1, [False, False])


def test_widths_share_a_memory_pool_and_leave_no_gradients_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded steps of all widths share a pool, so another step would overwrite gradients that one leaves in it."""
    pools: list[object] = []
    monkeypatch.setattr(cohort_stack, "new_pool", lambda device: pools.append(object()) or pools[-1])
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", 0)
    monkeypatch.setattr(kernels, "sgd_kernel", lambda device: dense_sgd(lowrank_counts))
    fed, lowrank_counts = federation("moon", "stacked", norm=True, local=LOCAL), list[int]()
    one_round(fed)
    stack = fed.engine._stack
    assert [width_step.step._pool for width_step in stack._width_steps.values()] == pools * 3
    left = [pairs for width_step in stack._width_steps.values() for pairs in width_step.lowrank._captured.values()]
    # Three layers in each of three widths: all factors were consumed.
    assert (left, set(lowrank_counts)) == ([[]] * 9, {3})


def test_measured_bytes_grow_with_the_batch() -> None:
    x = torch.randn(10, 4)
    w = torch.randn(4, 4, requires_grad=True)
    small, large = (cohort_memory.bytes_of_step(lambda n=n: (x[:n] @ w).tanh().sum()) for n in (2, 10))
    assert large > small > 0


@pytest.mark.parametrize(("engine", "workers"), [("plain", 1), ("loop", 1), ("loop", 2), ("stacked", 1)])
def test_padding_share_is_the_share_of_filler_rows(engine: str, workers: int) -> None:
    """The stack shrinks with steps 6, 4, 2; batches of 4 have 48 places for two passes over 11, 6 and 1 rows."""
    fed = federation("fedavg", engine, workers=workers)
    assert fed.engine.padding_share == 0
    one_round(fed)
    fed.engine.close()
    assert fed.engine.padding_share == pytest.approx(1 - 36 / 48)


def test_precision_of_the_state_is_kept(engine: str) -> None:
    model = one_round(federation("moon", engine, norm=True, precision="float32"))
    assert {t.dtype for t in model.values()} == {torch.float32, torch.int64}


@pytest.mark.parametrize("method", ["moon", "test-all"])
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_prefetched_batches_equal_single_ones(method: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = []
    for prefetch_bytes in (None, 1):
        if prefetch_bytes:
            monkeypatch.setattr(feed, "CHUNK_BYTES", prefetch_bytes)
            monkeypatch.setattr(cohort_stack, "FILL_BYTES", prefetch_bytes)
        fed = federation(method, engine)
        snap = fed.start()
        for _ in range(2):
            snap, _ = fed.run_round(snap)
            fed.store.commit()
        models.append(snap.model)
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.parametrize("kind", [{"optimiser": "adam"}, {"momentum": 0.9, "scope": "step"}, {"momentum": 0.0}])
def test_every_optimiser_is_correct_with_reused_memory(kind: dict) -> None:
    """Optimiser states that are zeroed between rounds and steps equal new ones."""
    local = {"epochs": 2, "batch": 4, "lr": 0.05} | kind
    models = []
    for engine in ("loop", "stacked"):
        fed = federation("fedavg", engine, local=local)
        snap = fed.start()
        for _ in range(2):
            snap, _ = fed.run_round(snap)
        models.append(snap.model)
    for name in models[0]:
        torch.testing.assert_close(models[0][name], models[1][name], rtol=1e-9, atol=1e-11)


def test_the_order_of_names_does_not_matter() -> None:
    """A state loaded from a file may list tensors of equal shape, here BatchNorm's, in another order."""
    models = []
    for swapped in (False, True):
        fed = federation([{"fedprox": {"mu": 1.0}}], "stacked", norm=True)
        snap, _ = fed.run_round(fed.start())
        gain, shift = names = ("0.1.weight", "0.1.bias")
        if swapped:
            other = {gain: shift, shift: gain}
            snap = replace(snap, model={n: snap.model[n] for n in (other.get(n, n) for n in snap.model)})
            assert list(snap.model).index(gain) > list(snap.model).index(shift)
        assert {snap.model[name].shape for name in names} == {(6,)}
        models.append(fed.run_round(snap)[0].model)
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.parametrize("cohort", [1, 2, 3])
def test_prefetched_plans_equal_those_made_in_the_round(cohort: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: every cohort of a later round has its plans prefetched, and the model has the same bytes."""
    models, late_planners = [], []
    planner = feed.Planner

    def too_late(*args: Any) -> feed.Planner:
        late_planners.append(args)
        return planner(*args)

    for early in (False, True):
        fed = federation("scaffold", "stacked", rounds=3, absence=[])
        fed.engine.limit = cohort  # type: ignore[attr-defined]
        fed.engine._prefetch._enabled = early  # type: ignore[attr-defined]
        snap = fed.start()
        for _ in range(fed.task.rounds):
            with monkeypatch.context() as patch:
                if early and snap.round:
                    patch.setattr(feed, "Planner", too_late)
                snap, _ = fed.run_round(snap)
            fed.store.commit()
            is_one_cohort = early and cohort == 3 and snap.round < fed.task.rounds
            assert (fed.engine._prefetch._next_feed is not None) == is_one_cohort  # type: ignore[attr-defined]
        models.append(snap.model)
        assert not late_planners
        assert len(fed.engine._prefetch._plans) == early  # type: ignore[attr-defined]  # of the last round only
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_cached_shapes_are_those_of_the_round() -> None:
    """Prefetching computes them once for all rounds whose plans have the same shapes."""
    fed = federation("scaffold", "stacked", rounds=3, absence=[])
    prefetch = Prefetch(fed.engine.context)  # type: ignore[attr-defined]
    prefetch._enabled = True
    for round in (1, 2, 3):
        batch_feed = prefetch.prepare(round, max_clients=fed.task.clients)
        assert batch_feed is not None
        assert batch_feed.shapes == feed.shapes(batch_feed.between(0, 1, 1), 2)
    assert len(prefetch._shapes) == 1


def test_memory_of_a_step_of_another_shape_is_freed_at_once() -> None:
    """FLea's second round has a buffer, so another step; on a GPU the memory of both rounds may not fit together."""
    fed = federation("flea-half", "stacked")
    snap, _ = fed.run_round(fed.start())
    first = weakref.ref(fed.engine._stack)  # type: ignore[attr-defined]
    gc.disable()
    try:
        fed.run_round(snap)
        assert first() is None
    finally:
        gc.enable()
