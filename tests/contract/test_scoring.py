"""Every engine gives the same scores: in parts, in chunks that fit into memory, with a CUDA graph or without."""

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
from unskew.engines.stacked.stacked_layers import use_stacked_layers
from unskew.models import ZOO
from unskew.models.model import Model
from unskew.runner.prepare_run import prepare
from unskew.wire.requests_and_replies import Received


def test_rows_that_share_batch_statistics_are_not_split() -> None:
    """A BatchNorm without running statistics uses those of the batch, also in evaluation."""
    model = Model(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)))
    x = torch.randn(40, 4)
    logits = stacked_evaluation.run_in_row_groups(model, model.initial, x)
    torch.testing.assert_close(logits, model.run(model.initial, x))


@pytest.mark.parametrize("track", [True, False])
def test_a_cpu_scores_independent_rows_in_small_chunks(
    engine: str, track: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 test rows: 50 at a time, but all at once if BatchNorm makes rows depend on each other."""
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
def test_rows_in_parts_score_the_same_as_all_at_once(rows: int) -> None:
    """As on a GPU, where stacked layers are faster; 41 rows do not divide into equal parts."""
    torch.manual_seed(0)
    model = Model(ZOO["mobilenet_v2"]((3, 8, 8), 10), dtype=torch.float64)
    state = {k: t + 0.1 * torch.rand_like(t) if t.is_floating_point() else t for k, t in model.initial.items()}
    x = torch.randn(rows, 3, 8, 8, dtype=torch.float64)
    stacked_model = model.with_layers(lambda blocks: fuse(use_stacked_layers(blocks)))
    torch.testing.assert_close(stacked_evaluation.run_in_row_groups(stacked_model, state, x), model.run(state, x))


def test_rows_that_do_not_fit_are_scored_in_smaller_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation("fedavg", "stacked")
    rows, snap, confusion_and_loss = (
        len(fed.engine.context.splits["test"][1]),
        fed.start(),
        EngineContext.confusion_and_loss,
    )
    expected, sizes = fed.engine.evaluate(1, fed.received(snap), "test"), []

    def small_gpu(context: EngineContext, method: Any, received: Any, x: torch.Tensor, *rest: Any) -> Any:
        sizes.append(len(x))
        if sizes[-1] > 5:
            raise torch.OutOfMemoryError
        return confusion_and_loss(context, method, received, x, *rest)

    monkeypatch.setattr(EngineContext, "confusion_and_loss", small_gpu)
    for _ in range(2):
        score = fed.engine.evaluate(1, fed.received(snap), "test")
        assert torch.equal(score.confusion, expected.confusion)
        assert score.loss == pytest.approx(expected.loss)
    assert sizes.count(rows) == 1
    monkeypatch.setattr(
        EngineContext, "confusion_and_loss", lambda *args: (_ for _ in ()).throw(torch.OutOfMemoryError)
    )
    with pytest.raises(torch.OutOfMemoryError):
        fed.engine.evaluate(1, fed.received(snap), "test")


def test_a_cuda_graph_scores_the_current_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph reads the memory it was recorded with, whatever is passed later."""

    class ReadsFirstInputs(CudaGraph):
        def __call__(self) -> None:
            scoring = fed.engine._evaluator
            self._first = getattr(self, "_first", scoring._inputs)
            scoring._inputs = self._first
            super().__call__()

    monkeypatch.setattr(stacked_evaluation, "CudaGraph", ReadsFirstInputs)
    fed, loop = federation("fedavg", "stacked"), federation("fedavg", "loop")
    models = [fed.start().model, {k: t + 0.3 * torch.randn_like(t) for k, t in fed.start().model.items()}]
    for model in (*models, models[0]):
        score, expected = (each.engine.evaluate(1, Received(dict(model), {}), "test") for each in (fed, loop))
        assert torch.equal(score.confusion, expected.confusion)
        assert score.loss == pytest.approx(expected.loss, 1e-9)
    fed.engine.close()
    assert fed.engine._evaluator._passes == {}


def test_memory_of_cuda_graphs_is_freed_if_training_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later graphs get a new pool, because PyTorch refuses a pool whose graphs are all deleted."""
    pools: list[object] = []
    monkeypatch.setattr(stacked_evaluation, "new_pool", lambda device: pools.append(object()) or pools[-1])
    fed = federation("fedavg", "stacked")
    train, snap, pass_counts = StackedEngine._train_cohort, fed.start(), []

    def limited_memory(self: Any, source: Any, round: int, received: Any, clients: list[int], states: Any) -> Any:
        pass_counts.append(len(self._evaluator._passes))
        if len(clients) > 1:
            raise torch.OutOfMemoryError
        return train(self, source, round, received, clients, states)

    monkeypatch.setattr(StackedEngine, "_train_cohort", limited_memory)
    expected = fed.engine.evaluate(1, fed.received(snap), "test")
    fed.run_round(snap)
    assert pass_counts[:2] == [1, 0]
    assert fed.engine.evaluate(1, fed.received(snap), "test").loss == expected.loss
    assert fed.engine._evaluator._passes["test", True][1][0]._pool is pools[-1]
    assert len(pools) > 1


def test_a_part_that_changes_the_batch_is_called_in_every_evaluation() -> None:
    """Its change depends on the current broadcast, so such a pass cannot be recorded as a CUDA graph."""

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
