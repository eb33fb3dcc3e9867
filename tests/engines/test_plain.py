"""The plain engine, which is the reference for the others, and the registry of engines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import unskew as us
from unskew.base.tree import State
from unskew.config.recipe import load
from unskew.engines import engine_registry as engines
from unskew.engines.plain_engine import PlainEngine
from unskew.protocol import method_registry
from unskew.runner.prepare_run import prepare

X, Y = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
LOCAL = {"steps": 5, "batch": 4, "lr": 0.05, "weight_decay": 1e-2}


def data() -> us.Dataset:
    return us.from_arrays(X, Y, x_test=X[:9], y_test=Y[:9])


def network() -> torch.nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        body = [torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Dropout(0.3)]
        return torch.nn.Sequential(torch.nn.Sequential(*body), torch.nn.Linear(8, 3))


def experiment(engine: str, method: Any = "fedavg", **changes: Any) -> us.Experiment:
    keys: dict[str, Any] = {"precision": "float64", "rounds": 2, "local": LOCAL, "device": "cpu"} | changes
    return us.Experiment(method=method, partition={"name": "iid", "clients": 3}, engine=engine, **keys)


def model_after(engine: str, method: Any = "fedavg", **local: Any) -> State:
    """The model after two rounds."""
    fed = prepare(experiment(engine, method, local=LOCAL | local), data=data(), model=network()).federation
    snap = fed.start()
    for _ in range(2):
        snap, _ = fed.run_round(snap)
        fed.store.commit()
    fed.engine.close()
    return snap.model


@pytest.fixture
def restore_registries() -> Iterator[None]:
    """Remove engines, parts and methods that a test has registered."""
    method_registry.method_names()  # loads the package's own, which must survive
    tables: list[dict[str, Any]] = [engines.ENGINES, method_registry.PARTS, method_registry.METHODS]
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before):
        table.clear()
        table.update(entries)


@pytest.mark.parametrize("scope", ["round", "step"])
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize(
    "optimiser",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"optimiser": "adam", "betas": (0.8, 0.99)},
        {"optimiser": "adamw"},
    ],
    ids=["momentum", "nesterov", "adam", "adamw"],
)
def test_the_plain_engine_takes_the_same_steps_as_the_loop_engine(
    optimiser: dict[str, Any], clip: float | None, scope: str
) -> None:
    local = optimiser | {"clip": clip, "scope": scope}
    plain, loop = model_after("plain", **local), model_after("loop", **local)
    start = prepare(experiment("plain"), data=data(), model=network()).federation.start().model
    for name in loop:
        torch.testing.assert_close(plain[name], loop[name], rtol=1e-12, atol=1e-12)
        assert not torch.equal(plain[name], start[name])


@pytest.mark.usefixtures("restore_registries")
def test_weights_that_a_loss_does_not_reach_decay_as_in_the_loop_engine() -> None:
    """torch.optim skips parameters without a gradient."""

    @us.part("test-body-only")
    class BodyOnly(us.Part):
        objective = True

        def loss(self, view: us.View) -> Tensor:
            return view.mean(view.at(1).pow(2).mean(1))

    method = "average+test-body-only"
    plain, loop = (model_after(engine, method, momentum=0.9) for engine in ("plain", "loop"))
    torch.testing.assert_close(plain, loop, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("restore_registries")
def test_a_loss_may_print_and_read_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """The stacked engine maps the loss over clients, where tensors have no concrete values."""
    logit_sums: list[float] = []

    @us.part("test-print")
    class Print(us.Part):
        def loss(self, view: us.View) -> Tensor | None:
            logit_sums.append(float(view.logits.detach().sum()))
            print("batch", len(view.y))  # noqa: T201
            return None

    fed = prepare(experiment("plain", "fedavg+test-print"), data=data(), model=network()).federation
    fed.run_round(fed.start())
    assert len(logit_sums) == len(set(logit_sums)) == 3 * LOCAL["steps"]
    assert capsys.readouterr().out == "batch 4\n" * 3 * LOCAL["steps"]


@pytest.mark.usefixtures("restore_registries")
def test_a_registered_engine_runs(tmp_path: Path) -> None:
    """By its name, in a recipe and from Python."""
    worker_counts = []

    @engines.engine("custom", "counts how often it is made", workers=True)
    class CustomEngine(PlainEngine):
        name = "custom"

        def __init__(self, context: Any, workers: int) -> None:
            worker_counts.append(workers)
            super().__init__(context)

    recipe = tmp_path / "custom.yaml"
    recipe.write_text("engine: custom")
    assert load(str(recipe))[1].engine.name == "custom"
    chosen = {"name": "custom", "workers": 7}
    setting = us.Experiment(partition={"name": "iid", "clients": 3}, rounds=1, engine=chosen, device="cpu")
    done = us.run(setting, out=tmp_path / "run", data=data(), model=network())
    assert worker_counts == [7]
    assert us.load(tmp_path / "run").environment["engine"] == "custom"
    assert done.summary.last_round == 1


@pytest.mark.parametrize("name", ["auto", "plain", "loop", "stacked"])
def test_an_engine_may_be_given_as_a_string(name: str, tmp_path: Path) -> None:
    recipe = tmp_path / "one.yaml"
    recipe.write_text(f"engine: {name}")
    assert load(str(recipe))[1].engine == us.Experiment(engine=name).engine
    assert load("quick", [f"engine={name}"])[1].engine.name == name
    fed = prepare(experiment(name), data=data(), model=network()).federation
    assert fed.engine.name == ("loop" if name == "auto" else name)
    fed.engine.close()


def test_an_unknown_engine_is_refused_with_the_available_names() -> None:
    expected = "found 'plane'; did you mean plain. Expected one of auto, loop, stacked, plain"
    with pytest.raises(us.UserError, match=f"quick: engine.name: {expected}"):
        load("quick", ["engine=plane"])
    with pytest.raises(ValueError, match=expected.replace("?", r"\?")):
        us.Experiment(engine="plane")


def test_auto_picks_the_engine_that_declares_the_device() -> None:
    by_device = {device: name for name, entry in engines.ENGINES.items() for device in entry.auto}
    assert by_device == {"cpu": "loop", "cuda": "stacked"}
    assert {name for name, entry in engines.ENGINES.items() if entry.workers} == {"loop"}
    for name, entry in engines.ENGINES.items():
        assert entry.load().name == name


@pytest.mark.parametrize("name", ["auto", "plain", "loop", "stacked"])
def test_a_runs_identity_has_only_the_engines_name(name: str) -> None:
    """Neither its workers nor its capabilities: recorded runs are looked up by the name."""
    assert us.Experiment(engine={"name": name, "workers": 3}).identity_settings()["engine"] == {"name": name}
