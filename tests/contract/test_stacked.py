"""The stacked engine is stacked, fits into memory, and pays for few rows that nobody needs."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from small import LOCAL, SIZES, federation
from test_factors import multiplied

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

    received, mine = fed.received(fed.start()), {k: fed.store.get(k) for k in range(3)}
    list(fed.engine.train(1, received, [0, 1, 2], mine.__getitem__))  # the first cohort also measures memory
    with monkeypatch.context() as patch:
        patch.setattr(Model, "block", counted)
        list(fed.engine.train(1, received, [0, 1, 2], mine.__getitem__))
    return calls[True], calls[False]


def test_one_model_call_per_step_for_the_whole_cohort(monkeypatch: pytest.MonkeyPatch) -> None:
    assert train_calls(federation("fedavg", "stacked"), monkeypatch) == (max(STEPS), 0)
    assert train_calls(federation("fedavg", "loop"), monkeypatch) == (sum(STEPS), 0)


def test_two_frozen_models_more_for_moon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert train_calls(federation("moon", "stacked"), monkeypatch) == (max(STEPS), 2 * max(STEPS))


def one_round(fed: Federation) -> State:
    snap, _ = fed.play(fed.start())
    return snap.model


@pytest.mark.parametrize("size", [1, 2])
def test_cohort_is_cut_to_the_memory_there_is(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for `size` clients: the measured need of one, times what the engine keeps free."""
    whole = federation("moon", "stacked", norm=True)
    want, need, cohorts = one_round(whole), [], []
    measured, train = stacked.cohort_size, stacked.StackedEngine._cohort

    def enough(per_client: int, budget: int) -> int:
        need.append(per_client)
        return measured(per_client, int(2 * size * per_client / cohort_memory.SHARE) + 1)

    def counted(self: Any, source: Any, round: int, received: Any, clients: list[int], mine: Any) -> Any:
        cohorts.append(len(clients))
        return train(self, source, round, received, clients, mine)

    monkeypatch.setattr(stacked, "cohort_size", enough)
    monkeypatch.setattr(stacked.StackedEngine, "_cohort", counted)
    got = one_round(federation("moon", "stacked", norm=True))
    weights = sum(t.numel() * t.element_size() for t in whole.model.initial.values())
    assert need[0] > 7 * weights
    assert max(cohorts) == size
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


def test_cohort_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    want = one_round(federation("scaffold", "stacked"))
    train, tried = stacked.StackedEngine._cohort, []

    def small(self: Any, source: Any, round: int, received: Any, clients: list[int], mine: Any) -> Any:
        tried.append(len(clients))
        if len(clients) > 1:
            raise torch.OutOfMemoryError
        return train(self, source, round, received, clients, mine)

    monkeypatch.setattr(stacked.StackedEngine, "_cohort", small)
    got = one_round(federation("scaffold", "stacked"))
    assert tried == [3, 1, 2, 1, 1]
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


def test_memory_of_what_did_not_fit_is_given_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed stack is gone when the half is tried: not held by the engine, nor by the error's traceback."""
    train, failed, alive = cohort_stack.CohortStack.train, [], []

    def small(self: cohort_stack.CohortStack, work: Any, given: Any, feed: Any) -> Any:
        if len(feed.clients) > 2:
            failed.append(weakref.ref(self))
            raise torch.OutOfMemoryError
        alive.append(failed[0]() is not None)
        return train(self, work, given, feed)

    want = one_round(federation("scaffold", "stacked"))
    monkeypatch.setattr(cohort_stack.CohortStack, "train", small)
    torch.testing.assert_close(one_round(federation("scaffold", "stacked")), want, rtol=1e-12, atol=1e-14)
    assert (len(failed), alive) == (1, [False, False])


def test_widths_train_in_one_memory_and_leave_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded steps of all widths share a pool: what one leaves in it, such as gradients, another would overwrite."""
    pools: list[object] = []
    monkeypatch.setattr(cohort_stack, "new_pool", lambda device: pools.append(object()) or pools[-1])
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(kernels, "sgd_kernel", lambda device: multiplied(taken))
    fed, taken = federation("moon", "stacked", norm=True, local=LOCAL), list[int]()
    one_round(fed)
    made = fed.engine._stack
    assert [lane.step._pool for lane in made._width_steps.values()] == pools * 3
    left = [pairs for lane in made._width_steps.values() for pairs in lane.factors._found.values()]
    assert (left, set(taken)) == ([[]] * 9, {3})  # three layers' factors in each of three widths, all used up


def test_measured_bytes_grow_with_the_batch() -> None:
    x = torch.randn(10, 4)
    w = torch.randn(4, 4, requires_grad=True)
    small, large = (cohort_memory.bytes_of_step(lambda n=n: (x[:n] @ w).tanh().sum()) for n in (2, 10))
    assert large > small > 0


@pytest.mark.parametrize(("engine", "workers"), [("plain", 1), ("loop", 1), ("loop", 2), ("stacked", 1)])
def test_share_of_padding(engine: str, workers: int) -> None:
    """Steps 6, 4, 2 shrink without waste; batches of 4 have 48 places for two passes over 11, 6 and 1 rows."""
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
def test_batches_made_ahead_or_one_by_one_are_the_same(
    method: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for ahead in (None, 1):
        if ahead:
            monkeypatch.setattr(feed, "AHEAD", ahead)
            monkeypatch.setattr(cohort_stack, "AHEAD", ahead)
        fed = federation(method, engine)
        snap = fed.start()
        for _ in range(2):
            snap, _ = fed.play(snap)
            fed.store.commit()
        ends.append(snap.model)
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.parametrize("kind", [{"optimiser": "adam"}, {"momentum": 0.9, "scope": "step"}, {"momentum": 0.0}])
def test_every_optimiser_in_memory_that_stays(kind: dict) -> None:
    """Slots that are zeroed between rounds and steps are the same as none."""
    local = {"epochs": 2, "batch": 4, "lr": 0.05} | kind
    ends = []
    for engine in ("loop", "stacked"):
        fed = federation("fedavg", engine, local=local)
        snap = fed.start()
        for _ in range(2):
            snap, _ = fed.play(snap)
        ends.append(snap.model)
    for name in ends[0]:
        torch.testing.assert_close(ends[0][name], ends[1][name], rtol=1e-9, atol=1e-11)


def test_the_order_of_names_does_not_matter() -> None:
    """A state that was loaded from a file may list tensors of equal shape, here BatchNorm's, the other way round."""
    ends = []
    for turned in (False, True):
        fed = federation([{"fedprox": {"mu": 1.0}}], "stacked", norm=True)
        snap, _ = fed.play(fed.start())
        gain, shift = names = ("0.1.weight", "0.1.bias")
        if turned:
            other = {gain: shift, shift: gain}
            snap = replace(snap, model={n: snap.model[n] for n in (other.get(n, n) for n in snap.model)})
            assert list(snap.model).index(gain) > list(snap.model).index(shift)
        assert {snap.model[name].shape for name in names} == {(6,)}
        ends.append(fed.play(snap)[0].model)
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.parametrize("cohort", [1, 2, 3])
def test_plans_made_ahead_are_the_plans_made_then(cohort: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: every cohort of a later round finds its plans ready, and the run ends in the same bytes."""
    ends, late = [], []
    made = feed.Planner

    def too_late(*given: Any) -> feed.Planner:
        late.append(given)
        return made(*given)

    for early in (False, True):
        fed = federation("scaffold", "stacked", rounds=3, absence=[])
        fed.engine.limit = cohort  # type: ignore[attr-defined]
        fed.engine._ahead._useful = early  # type: ignore[attr-defined]
        snap = fed.start()
        for _ in range(fed.task.rounds):
            with monkeypatch.context() as patch:
                if early and snap.round:
                    patch.setattr(feed, "Planner", too_late)
                snap, _ = fed.play(snap)
            fed.store.commit()
            whole = early and cohort == 3 and snap.round < fed.task.rounds
            assert (fed.engine._ahead._whole is not None) == whole  # type: ignore[attr-defined]
        ends.append(snap.model)
        assert not late
        assert len(fed.engine._ahead._plans) == early  # type: ignore[attr-defined]  # of the last round alone
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_shapes_known_from_an_earlier_round_are_those_of_this_one() -> None:
    """Ahead of time they are made once for all rounds whose plans have the same shapes."""
    fed = federation("scaffold", "stacked", rounds=3, absence=[])
    ahead = Prefetch(fed.engine.context)  # type: ignore[attr-defined]
    ahead._useful = True
    for round in (1, 2, 3):
        whole = ahead.prepare(round, fit=fed.task.clients)
        assert whole is not None
        assert whole.shapes == feed.shapes(whole.between(0, 1, 1), 2)
    assert len(ahead._shapes) == 1


def test_memory_of_another_shape_is_given_back_at_once() -> None:
    """FLea's second round has a buffer, so another step; on a GPU both rounds' memory may not fit side by side."""
    fed = federation("flea-half", "stacked")
    snap, _ = fed.play(fed.start())
    first = weakref.ref(fed.engine._stack)  # type: ignore[attr-defined]
    gc.disable()
    try:
        fed.play(snap)
        assert first() is None
    finally:
        gc.enable()
