"""Refused replies and rounds below the quorum appear in the terminal, the ledger, the metrics and the report."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

import unskew as us
from runner import toys
from unskew.protocol import method_registry
from unskew.reports.report_page import write
from unskew.runner.run_experiment import run
from unskew.runner.run_progress import TerminalDisplay
from unskew.wire.ledger import REFUSED


@pytest.fixture
def diverging() -> Iterator[str]:
    """A part whose loss is NaN for clients with more rows of class 0 than the limit."""
    method_registry.method_names()
    before = dict(method_registry.PARTS)

    @us.part("diverging")
    class Diverging(us.Part):
        limit: float = 6.0

        def loss(self, view: us.View) -> Tensor:
            return torch.where(view.counts[0] > self.limit, torch.nan, 0.0) * view.logits.sum()

    yield "fedavg+diverging"
    method_registry.PARTS.clear()
    method_registry.PARTS.update(before)


def run_with_terminal_text(method: Any, out: Path, **keys: Any) -> tuple[us.Run, str]:
    """A run over clients with 8, 4 and 4 rows of class 0, and its plain output."""
    x, y = toys.arrays()
    group = (torch.arange(len(y)) // 3 % 4 % 3).numpy()
    console = Console(file=io.StringIO(), width=200)
    settings = toys.settings(method=method, partition={"name": "group"}, **keys)
    data = us.from_arrays(x, y, x_test=x, y_test=y, group=group)
    done = run(us.Experiment(**settings), data=data, out=out, show=TerminalDisplay(console))
    return done, console.file.getvalue()  # type: ignore[attr-defined]


def test_a_refused_loss_appears_everywhere(diverging: str, tmp_path: Path) -> None:
    done, text = run_with_terminal_text(diverging, tmp_path / "run", on_bad_loss="refuse")
    assert "round 1: client 0 refused (train): loss: expected finite terms, found ce nan, diverging nan" in text
    rows = done.ledger[done.ledger["kind"] == REFUSED]
    assert rows[["round", "client", "phase"]].to_numpy().tolist() == [[t, 0, "train"] for t in (1, 2, 3)]
    refused = done.metrics[done.metrics["metric"] == "dropped"]
    assert refused["who"].tolist() == ["client-0"] * 3
    assert "client-0" not in set(done.metrics[done.metrics["metric"].str.startswith("loss/")]["who"])
    page = write([us.load(tmp_path / "run")], tmp_path / "report.html", "refused").read_text()
    assert "3 replies refused (train), first from client 0 in round 1: loss: expected finite terms" in page
    assert torch.isfinite(torch.tensor(done.summary.final))


def test_a_round_below_the_quorum_appears_everywhere(diverging: str, tmp_path: Path) -> None:
    done, text = run_with_terminal_text(diverging, tmp_path / "run", on_bad_loss="refuse", quorum=0.7)
    assert "round 2: 2 of 3 sampled clients answered, below the quorum: the model stays as it was" in text
    assert (done.metrics["metric"] == "below quorum").sum() == 3
    accuracy = done.metrics[(done.metrics["metric"] == "accuracy") & (done.metrics["split"] == "test")]
    assert accuracy["value"].nunique() == 1
    page = write([us.load(tmp_path / "run")], tmp_path / "report.html", "refused").read_text()
    assert "3 rounds below the quorum, which left the model unchanged" in page


def test_a_checkpoint_lists_sampled_and_answered_clients(diverging: str, tmp_path: Path) -> None:
    run_with_terminal_text(diverging, tmp_path / "run", on_bad_loss="refuse")
    manifest = json.loads((tmp_path / "run/checkpoint/manifest.json").read_text())
    assert manifest["last_round"] == {"sampled": [0, 1, 2], "answered": [1, 2], "absent": [0]}
    assert manifest["seen"] == [1, 2]


def test_a_diverging_loss_stops_the_run_by_default(diverging: str, tmp_path: Path) -> None:
    with pytest.raises(
        us.UserError, match=r"round 1, client 0: expected finite loss terms, found ce nan, diverging nan; try"
    ):
        run_with_terminal_text(diverging, tmp_path / "run")
