"""A tiny experiment, small test-only parts, and comparisons of two run folders."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import unskew as us
from unskew.protocol import method_registry

CLIENTS, CLASSES, WIDTH, ROWS = 3, 3, 6, 60
CALM = {"seconds": 1e6}  # no checkpoint during the run
EAGER = {"seconds": 0.0}  # a checkpoint after every round


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """60 rows of 3 classes that overlap a little."""
    y = np.arange(ROWS) % CLASSES
    return (np.random.default_rng(0).normal(size=(ROWS, WIDTH)) + y[:, None]).astype("float32"), y


def dataset(group: np.ndarray | None = None) -> us.Dataset:
    """48 training and 12 test rows."""
    return us.from_arrays(*arrays(), test=0.2, group=group)


def grouped() -> us.Dataset:
    """Client 2 has classes 1 and 2 only, the others have all classes."""
    _, y = arrays()
    group = np.where(y == 0, np.arange(ROWS) % 2, np.arange(ROWS) // 3 % 3)
    return dataset(group)


def settings(**changes: Any) -> dict[str, Any]:
    """A run of a tenth of a second: 3 clients, 3 rounds, 643 parameters."""
    base: dict[str, Any] = {
        "rounds": 3,
        "partition": {"name": "iid", "clients": CLIENTS},
        "engine": {"name": "loop", "workers": 1},
        "device": "cpu",
        "local": {"epochs": 1, "batch": 8, "lr": 0.05},
        "checkpoint": CALM,
    }
    return base | changes


def run(
    out: Path,
    *,
    data: us.Dataset | None = None,
    hold_out: float = 0.0,
    resume: bool = False,
    phase: Any = None,
    **changes: Any,
) -> us.Run:
    """Run the tiny experiment with changes, on `data` or `dataset()`."""
    experiment = us.Experiment(**settings(**changes), data={"validation": hold_out})
    return us.run(experiment, out=out, data=data or dataset(), resume=resume, phase=phase)


def stop_at(phase: str, round: int, error: type[BaseException] = KeyboardInterrupt) -> Any:
    """A phase callback that raises at one phase of one round."""

    def callback(current: str, number: int) -> None:
        if (current, number) == (phase, round):
            raise error

    return callback


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "checkpoint" / "manifest.json").read_text())


def rows_of(folder: Path, name: str = "metrics") -> pd.DataFrame:
    return pd.read_parquet(folder / f"{name}.parquet")


def assert_same(one: Path, other: Path) -> None:
    """The same numbers to the last bit, in the same order."""
    for name in ("metrics", "ledger", "clients"):
        pd.testing.assert_frame_equal(rows_of(one, name), rows_of(other, name), check_exact=True)
    for name in ("metrics.parquet", "ledger.parquet", "model.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@us.part("toy-share")
class Share(us.Part):
    """Clients share two rows after the merge; the server broadcasts all of them in the next round."""

    exchange = us.Exchange("after merge")
    shares: ClassVar[dict[str, us.Artefact]] = {"x": us.Artefact("raw", reduce="rows")}
    broadcasts: ClassVar[dict[str, us.Artefact]] = {"x": us.Artefact("raw")}

    def client_init(self, model: Any, client: us.Newcomer) -> us.State:
        return {"times": torch.zeros(())}

    def draws(self, when: str, sizes: us.Sizes, generator: np.random.Generator) -> dict:
        return {"pick": generator.permutation(sizes.rows)[:2]} if when == "share" else {}

    def share(self, client: us.Client) -> tuple[dict[str, Any], us.State]:
        x, _, keep = client.rows(client.draws["pick"])
        times = client.part_state["times"] + 1
        return {"x": us.Rows(x * times, keep)}, {"times": times}

    def collect(self, server: us.Server, shared: us.Messages) -> us.Server:
        return server.replace(part_state={"x": shared.rows("x")}) if shared else server

    def down(self, server: us.Server) -> dict[str, Any]:
        return dict(server.part_state)

    def loss(self, view: us.View) -> Tensor | None:
        return 0.1 * view.run(view.received["x"], 0).pow(2).mean() if view.received else None


@us.part("toy-lasting")
class Lasting(us.Part):
    """A broadcast that changes in round 3 only."""

    broadcasts: ClassVar[dict[str, us.Artefact]] = {"table": us.Artefact("statistics", lasting=True)}

    def server_init(self, model: Any, task: Any) -> us.State:
        return {"table": torch.arange(4.0)}

    def step(self, server: us.Server) -> us.Server:
        return server.replace(part_state={"table": server.part_state["table"] + (server.round == 3)})

    def down(self, server: us.Server) -> dict[str, Any]:
        return dict(server.part_state)


@us.part("toy-nan")
class Nan(us.Part):
    """From round `first` on, the loss of a client without rows of class 0 is nan."""

    first: int = 1
    on: float = 0.0

    def at_round(self, round: int, work: Any) -> tuple[us.Part, Any]:
        return replace(self, on=float(round >= self.first)), work

    def loss(self, view: us.View) -> Tensor:
        bad = torch.where((view.counts[0] == 0) & (self.on > 0), torch.nan, 0.0)
        return bad * sum(w.sum() for w in view.parameters.values())


@us.part("toy-nan-message")
class NanMessage(us.Part):
    """A client without rows of class 0 sends nan, although its loss is finite."""

    sends: ClassVar[dict[str, us.Artefact]] = {"half": us.Artefact("statistics", reduce="sum")}

    def up(self, end: us.End) -> tuple[dict[str, Any], us.State]:
        return {"half": torch.where(end.facts.counts[0] == 0, torch.nan, 0.5)}, end.part_state


@us.part("toy-two")
class Two(us.Part):
    """Two artefacts in one message."""

    sends: ClassVar[dict[str, us.Artefact]] = {
        "steps": us.Artefact("statistics"),
        "counts": us.Artefact("counts", reduce="sum"),
    }

    def up(self, end: us.End) -> tuple[dict[str, Any], us.State]:
        return {"steps": end.steps, "counts": end.facts.counts}, end.part_state


@us.part("toy-end")
class AtTheEnd(us.Part):
    """An exchange after the last round that changes clients and server: clients count how often they were asked."""

    exchange = us.Exchange("at the end", who="all")
    shares: ClassVar[dict[str, us.Artefact]] = {"times": us.Artefact("statistics", reduce="sum")}

    def client_init(self, model: Any, client: us.Newcomer) -> us.State:
        return {"times": torch.zeros(())}

    def share(self, client: us.Client) -> tuple[dict[str, Any], us.State]:
        times = client.part_state["times"] + 1
        return {"times": times}, {"times": times}

    def collect(self, server: us.Server, shared: us.Messages) -> us.Server:
        return server.replace(part_state={"asked": shared.sum("times")})


@us.part("toy-newcomers")
class Greeting(us.Part):
    """Clients report once how many rows they have."""

    exchange = us.Exchange("before round", who="newcomers", model=False)
    shares: ClassVar[dict[str, us.Artefact]] = {"rows": us.Artefact("counts", reduce="sum")}

    def share(self, client: us.Client) -> tuple[dict[str, Any], us.State]:
        return {"rows": client.facts.rows}, client.part_state


@us.part("toy-nan-share")
class NanShare(us.Part):
    """A client without rows of class 0 shares nan."""

    exchange = us.Exchange("after merge", model=False)
    shares: ClassVar[dict[str, us.Artefact]] = {"half": us.Artefact("statistics", reduce="sum")}

    def share(self, client: us.Client) -> tuple[dict[str, Any], us.State]:
        return {"half": torch.where(client.facts.counts[0] == 0, torch.nan, 0.5)}, client.part_state


@us.part("toy-batch")
class Brighter(us.Part):
    """Rows are changed in training and in evaluation."""

    def batch(self, batch: us.Batch, received: dict[str, Any], train: bool) -> us.Batch:
        return replace(batch, x=batch.x + 1)


@us.part("toy-slow")
class Slow(us.Part):
    """A client without rows of class 0 is slow at the end of its round."""

    def up(self, end: us.End) -> tuple[dict[str, Any], us.State]:
        time.sleep(0.5 if end.facts.counts[0] == 0 else 0.0)
        return {}, end.part_state


NAMES = (
    "toy-share",
    "toy-lasting",
    "toy-nan",
    "toy-nan-message",
    "toy-nan-share",
    "toy-two",
    "toy-end",
    "toy-newcomers",
    "toy-batch",
    "toy-slow",
)
# Removed from the registry until a test needs them, because other tests use all registered parts.
PARTS = {name: method_registry.PARTS.pop(name) for name in NAMES}


def shipped() -> list[str]:
    """Methods of the package, without those that other test modules register in the same process."""
    return [name for name in method_registry.method_names() if not name.startswith("test-")]
