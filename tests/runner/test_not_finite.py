"""A loss that is not finite stops the run with an error that names it; the round before is saved."""

from __future__ import annotations

from pathlib import Path

import pytest

import unskew as us

from . import toys
from .conftest import Command

GROUP = {"name": "group"}
LATE = ["scaffold", "toy-nan", {"toy-nan": {"first": 3}}]


@pytest.mark.parametrize("checkpoint", [toys.EAGER, toys.CALM], ids=["eager", "calm"])
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_nan_loss_is_named_and_the_round_before_is_saved(
    engine: str, checkpoint: dict[str, float], tmp_path: Path
) -> None:
    changes = {"engine": {"name": engine, "workers": 1}, "checkpoint": checkpoint, "partition": GROUP, "rounds": 5}
    with pytest.raises(us.UserError) as error:
        toys.run(tmp_path, data=toys.grouped(), method=LATE, **changes)
    for words in (
        "round 3, client 2: expected finite loss terms, found ce nan, scaffold nan, toy-nan nan",
        "lower local.lr (now 0.05)",
        "local.clip",
        f"round 2, the last without errors, is saved in {tmp_path}/checkpoint",
    ):
        assert words in str(error.value)
    manifest = toys.manifest(tmp_path)
    assert (manifest["round"], manifest["finished"]) == (2, None)
    rows = toys.rows_of(tmp_path / manifest["folder"])
    assert rows["round"].max() == 2
    assert rows["value"].notna().all()


def test_nan_loss_in_a_worker_is_named_too(tmp_path: Path) -> None:
    engine = {"name": "loop", "workers": 2}
    with pytest.raises(
        us.UserError, match="round 3, client 2: expected finite loss terms, found ce nan, scaffold nan, toy-nan nan"
    ):
        toys.run(tmp_path, data=toys.grouped(), method=LATE, partition=GROUP, engine=engine)


def test_the_saved_checkpoint_equals_that_of_a_shorter_run(tmp_path: Path) -> None:
    with pytest.raises(us.UserError):
        toys.run(tmp_path / "nan", data=toys.grouped(), method=LATE, partition=GROUP)
    toys.run(tmp_path / "short", data=toys.grouped(), method=LATE, partition=GROUP, rounds=2, checkpoint=toys.EAGER)
    saved, short = (toys.manifest(tmp_path / name) for name in ("nan", "short"))
    name = "server.safetensors"
    assert (tmp_path / "nan" / saved["folder"] / name).read_bytes() == (
        tmp_path / "short" / short["folder"] / name
    ).read_bytes()


def test_divergence_is_reported_on_the_command_line(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    result = unskew("run", recipe, "local.lr=1e25", "rounds=9", "--out", tmp_path / "run")
    assert (result.code, result.out) == (2, "")
    assert "client 0: expected finite loss terms, found ce " in result.err
    assert "lower local.lr (now 1e+25)" in result.err
    assert "Traceback" not in result.err
