"""A loss that is no number stops the run in that round, by name, with the round before kept."""

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
def test_loss_that_is_no_number_is_named_and_the_round_before_is_kept(
    engine: str, checkpoint: dict[str, float], tmp_path: Path
) -> None:
    changes = {"engine": {"name": engine, "workers": 1}, "checkpoint": checkpoint, "partition": GROUP, "rounds": 5}
    with pytest.raises(us.UserError) as told:
        toys.play(tmp_path, data=toys.owned(), method=LATE, **changes)
    for words in (
        "round 3, client 2: expected finite loss terms, found ce nan, scaffold nan, toy-nan nan",
        "lower local.lr (it is 0.05)",
        "local.clip",
        f"round 2, the last good one, is kept in {tmp_path}/checkpoint",
    ):
        assert words in str(told.value)
    made = toys.manifest(tmp_path)
    assert (made["round"], made["finished"]) == (2, None)
    rows = toys.rows_of(tmp_path / made["folder"])
    assert rows["round"].max() == 2
    assert rows["value"].notna().all()


def test_workers_tell_it_too(tmp_path: Path) -> None:
    engine = {"name": "loop", "workers": 2}
    with pytest.raises(
        us.UserError, match="round 3, client 2: expected finite loss terms, found ce nan, scaffold nan, toy-nan nan"
    ):
        toys.play(tmp_path, data=toys.owned(), method=LATE, partition=GROUP, engine=engine)


def test_the_kept_checkpoint_is_that_of_a_shorter_run(tmp_path: Path) -> None:
    with pytest.raises(us.UserError):
        toys.play(tmp_path / "nan", data=toys.owned(), method=LATE, partition=GROUP)
    toys.play(tmp_path / "short", data=toys.owned(), method=LATE, partition=GROUP, rounds=2, checkpoint=toys.EAGER)
    kept, short = (toys.manifest(tmp_path / name) for name in ("nan", "short"))
    name = "server.safetensors"
    assert (tmp_path / "nan" / kept["folder"] / name).read_bytes() == (
        tmp_path / "short" / short["folder"] / name
    ).read_bytes()


def test_rate_that_is_far_too_large_is_refused_on_the_command_line(
    recipe: Path, tmp_path: Path, unskew: Command
) -> None:
    said = unskew("run", recipe, "local.lr=1e25", "rounds=9", "--out", tmp_path / "run")
    assert (said.code, said.out) == (2, "")
    assert "client 0: expected finite loss terms, found ce " in said.err
    assert "lower local.lr (it is 1e+25)" in said.err
    assert "Traceback" not in said.err
