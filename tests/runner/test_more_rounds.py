"""A run resumed with more rounds equals the run that had them from the start, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import unskew as us
from unskew.base.errors import UserError
from unskew.protocol import method_registry

from . import toys
from .conftest import Command


@pytest.mark.parametrize("stopped_in", [None, 2])
@pytest.mark.parametrize("changes", [{}, {"evaluate": {"every": 2}}, {"stop": {"patience": 2}}])
@pytest.mark.parametrize("method", ["moon", "scaffold", "fedcurv"])
def test_equal_to_a_run_that_had_them_from_the_start(
    method: str, changes: dict[str, Any], stopped_in: int | None, tmp_path: Path
) -> None:
    if stopped_in:
        with pytest.raises(KeyboardInterrupt):
            toys.run(tmp_path / "run", method=method, phase=toys.stop_at("plan", stopped_in), **changes)
    else:
        toys.run(tmp_path / "run", method=method, **changes)
    toys.run(tmp_path / "run", method=method, rounds=7, resume=True, **changes)
    toys.run(tmp_path / "whole", method=method, rounds=7, **changes)
    toys.assert_same(tmp_path / "whole", tmp_path / "run")
    for name in ("config.yaml", "about.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


@pytest.mark.parametrize("rounds", [3, 5])
@pytest.mark.parametrize("step", ["write_config", "save", "plan"])
def test_killed_while_it_begins_to_continue(
    step: str, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either number of rounds can be resumed until the new settings are written."""
    changes: dict[str, Any] = {"method": "moon", "evaluate": {"every": 2}}
    toys.run(tmp_path / "run", **changes)
    with monkeypatch.context() as patch:
        if step != "plan":
            patch.setattr(f"unskew.results.run_folder.RunFolder.{step}", lambda *a, **k: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            toys.run(tmp_path / "run", rounds=5, resume=True, phase=toys.stop_at("plan", 4, Killed), **changes)
    if step == "plan" and rounds == 3:
        with pytest.raises(UserError, match="rounds was 5, is now 3"):
            toys.run(tmp_path / "run", rounds=3, resume=True, **changes)
        return
    toys.run(tmp_path / "run", rounds=rounds, resume=True, **changes)
    toys.run(tmp_path / "whole", rounds=rounds, **changes)
    toys.assert_same(tmp_path / "whole", tmp_path / "run")


class Killed(BaseException):
    """Stands for kill -9."""


@us.part("toy-reads-rounds")
class ReadsRounds(us.Part):
    """Depends on how many rounds there will be."""

    def server_init(self, model: Any, task: Any) -> us.State:
        return {"share": torch.tensor(1.0 / share_of(task))}


def share_of(task: Any) -> int:
    """Reads it outside the class."""
    return int(getattr(task, "rounds"))  # noqa: B009


method_registry.PARTS.pop("toy-reads-rounds")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"local": toys.settings()["local"] | {"schedule": "cosine"}}, "local.schedule=cosine spreads the learning"),
        ({"method": "fedavg+toy-end"}, "exchange of toy-end at the end of the run"),
        ({"method": "fedavg+toy-reads-rounds"}, "toy-reads-rounds reads the number of rounds"),
    ],
)
def test_refused_where_past_rounds_depend_on_their_number(
    changes: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(method_registry.PARTS, "toy-reads-rounds", ReadsRounds)
    toys.run(tmp_path / "run", **changes)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=f"rounds was 3 and cannot become 5.*{reason}"):
        toys.run(tmp_path / "run", rounds=5, resume=True, **changes)
    assert {path: path.read_bytes() for path in before} == before


def test_a_round_evaluated_only_because_it_was_the_last_stops_no_longer_run(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"stop": {"target": 1.0}, "evaluate": {"every": 2}, "rounds": 1}
    assert toys.run(tmp_path / "run", **changes).summary.stopped
    changes["rounds"] = 4
    toys.run(tmp_path / "run", resume=True, **changes)
    whole = toys.run(tmp_path / "whole", **changes)
    assert whole.summary.last_round == 2
    toys.assert_same(tmp_path / "whole", tmp_path / "run")


def test_messages_of_rounds_that_are_over_cannot_be_recorded(tmp_path: Path) -> None:
    toys.run(tmp_path / "run")
    for rounds in (3, 5):
        with pytest.raises(UserError, match="round 2 is over and its messages were not recorded"):
            toys.run(tmp_path / "run", rounds=rounds, record={"rounds": [2]}, resume=True)
    toys.run(tmp_path / "run", rounds=5, record={"rounds": [4]}, resume=True)
    assert (tmp_path / "run" / "messages").is_dir()


def test_after_an_early_stop_there_are_no_more(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"stop": {"target": 1.0}}
    first = toys.run(tmp_path / "run", **changes)
    assert toys.run(tmp_path / "run", rounds=5, resume=True, **changes).summary == first.summary


def test_other_settings_are_refused_as_before(tmp_path: Path) -> None:
    toys.run(tmp_path / "run")
    for rounds, seed in ((2, 0), (5, 1)):
        with pytest.raises(UserError, match="expected the settings this run was started with"):
            toys.run(tmp_path / "run", rounds=rounds, seed=seed, resume=True)


def test_the_command_offers_to_continue(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    words = ("run", recipe, "--out", tmp_path / "run")
    assert unskew(*words).code == 0
    again = unskew(*words, "rounds=4")
    assert again.code == 2
    assert "add --resume to continue it to round 4, or choose another --out" in again.err
    assert unskew(*words, "rounds=4", "--resume").code == 0
    assert us.load(tmp_path / "run").summary.last_round == 4
