"""A split is scored alike by every engine: in parts, in chunks that fit, recorded or not."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from small import federation
from torch import nn

import unskew as us
from unskew.base.tree import State
from unskew.engines.engine import EngineContext
from unskew.engines.stacked import stacked_evaluation
from unskew.engines.stacked.cuda_graph import CudaGraph
from unskew.engines.stacked.fuse import fuse
from unskew.engines.stacked.stacked_engine import StackedEngine
from unskew.engines.stacked.stacked_layers import for_stack
from unskew.models import ZOO
from unskew.models.model import Model
from unskew.runner.prepare_run import prepare
from unskew.wire.message import Received


def test_rows_that_normalise_one_another_stay_together() -> None:
    """A BatchNorm without running statistics looks at the rows it is given, also in evaluation."""
    model = Model(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)))
    x = torch.randn(40, 4)
    torch.testing.assert_close(stacked_evaluation.in_parts(model, model.initial, x), model.run(model.initial, x))


@pytest.mark.parametrize("track", [True, False])
def test_a_cpu_scores_few_rows_at_a_time_where_they_are_alone(
    engine: str, track: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 test rows: by fifties, but all at once if a BatchNorm makes each of them depend on the others."""
    sizes: list[int] = []
    run = Model.run

    def counted(self: Model, state: State, h: torch.Tensor, start: int = 0, stop: int | None = None) -> torch.Tensor:
        sizes.append(len(h))
        return run(self, state, h, start, stop)

    x, y = torch.randint(0, 256, (150, 3, 8, 8)).to(torch.uint8), torch.arange(150) % 3
    data = us.from_arrays(x[:30], y[:30], name="toy", x_test=x[30:], y_test=y[30:])
    net = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=track), nn.Sequential(nn.Flatten(), nn.Linear(192, 3)))
    kind = {"name": engine, "workers": 1 if engine == "loop" else None}
    fed = prepare(us.Experiment(partition={"name": "iid", "clients": 2}, engine=kind), data=data, model=net).federation
    monkeypatch.setattr(Model, "run", counted)
    score = fed.engine.evaluate(1, fed.received(fed.start()), "test")
    assert sizes == ([50, 50, 20] if track else [120])
    logits = run(fed.model, fed.model.initial, data.prepare(data.test.x))
    assert int(score.confusion.diagonal().sum()) == int((logits.argmax(1) == data.test.y).sum())
    assert score.loss == pytest.approx(float(nn.functional.cross_entropy(logits, data.test.y, reduction="sum")), 1e-5)


@pytest.mark.parametrize("rows", [40, 41])
def test_rows_in_parts_are_scored_as_rows_at_once(rows: int) -> None:
    """As on a GPU, where the layers of a stack are faster; 41 rows are no whole number of parts."""
    torch.manual_seed(0)
    model = Model(ZOO["mobilenet_v2"]((3, 8, 8), 10), dtype=torch.float64)
    state = {k: t + 0.1 * torch.rand_like(t) if t.is_floating_point() else t for k, t in model.initial.items()}
    x = torch.randn(rows, 3, 8, 8, dtype=torch.float64)
    mine = model.rewritten(lambda blocks: fuse(for_stack(blocks)))
    torch.testing.assert_close(stacked_evaluation.in_parts(mine, state, x), model.run(state, x))


def test_rows_that_do_not_fit_are_scored_in_smaller_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation("fedavg", "stacked")
    rows, snap, whole = len(fed.engine.context.splits["test"][1]), fed.start(), EngineContext.scored
    want, asked = fed.engine.evaluate(1, fed.received(snap), "test"), []

    def small_card(context: EngineContext, method: Any, received: Any, x: torch.Tensor, *rest: Any) -> Any:
        asked.append(len(x))
        if asked[-1] > 5:
            raise torch.OutOfMemoryError
        return whole(context, method, received, x, *rest)

    monkeypatch.setattr(EngineContext, "scored", small_card)
    for _ in range(2):
        found = fed.engine.evaluate(1, fed.received(snap), "test")
        assert torch.equal(found.confusion, want.confusion)
        assert found.loss == pytest.approx(want.loss)
    assert asked.count(rows) == 1
    monkeypatch.setattr(EngineContext, "scored", lambda *args: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        fed.engine.evaluate(1, fed.received(snap), "test")


def test_a_recorded_pass_scores_the_model_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded reads the memory it was recorded with, whatever is handed over later."""

    class Played(CudaGraph):
        def __call__(self) -> None:
            scoring = fed.engine._scoring
            self._first = getattr(self, "_first", scoring._now)
            scoring._now = self._first
            super().__call__()

    monkeypatch.setattr(stacked_evaluation, "CudaGraph", Played)
    fed, loop = federation("fedavg", "stacked"), federation("fedavg", "loop")
    models = [fed.start().model, {k: t + 0.3 * torch.randn_like(t) for k, t in fed.start().model.items()}]
    for model in (*models, models[0]):
        mine, want = (each.engine.evaluate(1, Received(dict(model), {}), "test") for each in (fed, loop))
        assert torch.equal(mine.confusion, want.confusion)
        assert mine.loss == pytest.approx(want.loss, 1e-9)
    fed.engine.close()
    assert fed.engine._scoring._passes == {}


def test_memory_of_recorded_passes_is_given_back_where_training_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is recorded later gets a pool of its own: PyTorch refuses one whose recordings are all gone."""
    pools: list[object] = []
    monkeypatch.setattr(stacked_evaluation, "new_pool", lambda device: pools.append(object()) or pools[-1])
    fed = federation("fedavg", "stacked")
    train, snap, held = StackedEngine._cohort, fed.start(), []

    def small(self: Any, source: Any, round: int, received: Any, clients: list[int], mine: Any) -> Any:
        held.append(len(self._scoring._passes))
        if len(clients) > 1:
            raise torch.OutOfMemoryError
        return train(self, source, round, received, clients, mine)

    monkeypatch.setattr(StackedEngine, "_cohort", small)
    want = fed.engine.evaluate(1, fed.received(snap), "test")
    fed.play(snap)
    assert held[:2] == [1, 0]
    assert fed.engine.evaluate(1, fed.received(snap), "test").loss == want.loss
    assert fed.engine._scoring._passes["test", True][1][0]._pool is pools[-1]
    assert len(pools) > 1


def test_a_part_that_changes_the_batch_is_asked_in_every_evaluation() -> None:
    """By what the server sent of late: such a pass cannot be recorded."""

    @dataclass(frozen=True)
    class Shifts(us.Part):
        def batch(self, batch: Any, received: Any, train: bool) -> Any:
            return batch if train else replace(batch, x=batch.x + received["by"])

    fed = federation("fedavg", "stacked")
    parts = (*fed.engine.context.method.parts, Shifts())
    context = replace(fed.engine.context, method=replace(fed.engine.context.method, parts=parts))
    losses = [
        stacked_evaluation.StackedEvaluator(context)
        .score(1, Received(fed.start().model, {parts[-1].name: {"by": by}}), "test")
        .loss
        for by in (0.0, 1.0)
    ]
    assert losses[0] == pytest.approx(fed.engine.evaluate(1, fed.received(fed.start()), "test").loss, 1e-9)
    assert losses[0] != losses[1]
