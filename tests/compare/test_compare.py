"""Comparisons in real processes: killed, interrupted, with failing cells, and started again."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from runner import toys
from runner.conftest import Command
from runner.test_killed import PATIENCE, rounds_saved
from unskew.compare import grid as grids
from unskew.compare import process_pool
from unskew.compare.folder_lock import alone
from unskew.compare.progress import TerminalProgress

from .comparisons import FILES, SMALL, finished, one, workers

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
    pytest.mark.usefixtures("short_page"),
]


@pytest.fixture(scope="module")
def killed(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Its folder after kill -9 of the whole process group, with some cells finished and some not."""
    out = tmp_path_factory.mktemp("killed") / "out"
    command = [sys.executable, "-c", KILLS_ITSELF, "compare", str(many), "--out", str(out), "--jobs", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL, said
        with alone(out):  # none of its processes is left
            pass
        yield out
    finally:
        process.kill()
        process.communicate()


# The third cell is told of and no fourth was given, so that two or three are finished however fast they are.
KILLS_ITSELF = """
import os, signal
from unskew import cli
from unskew.compare.progress import TerminalProgress

over = []

def kill(self, cell, round, accuracy, best):
    if len(over) == 2 and round:
        os.killpg(0, signal.SIGKILL)

TerminalProgress.over, TerminalProgress.told = lambda self, cell, failure: over.append(cell), kill
cli.main()
"""


def test_killed_and_started_again_gives_the_same_table(
    many: Path, killed: Path, tmp_path: Path, unskew: Command
) -> None:
    before = finished(killed)
    assert 2 <= len(before) <= 3
    stamps = {name: stamp(killed, name) for name in before}
    again = unskew("compare", many, "--out", killed, "--jobs", "1")
    assert again.code == 0, again.err
    assert f"8 runs, {len(before)} finished before" in again.err
    assert {name: stamp(killed, name) for name in before} == stamps, "a finished cell was played again"
    whole = unskew("compare", many, "--out", tmp_path / "whole", "--jobs", "2")
    assert whole.code == 0
    assert finished(killed) == finished(tmp_path / "whole")
    for name in FILES:
        assert (killed / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    for name in finished(killed):
        toys.assert_same(killed / "cells" / name, tmp_path / "whole" / "cells" / name)
    assert (killed / "finding.txt").read_text().strip() in whole.out
    assert not (killed / "workers.log").exists()


def stamp(out: Path, name: str) -> dict[str, int]:
    """When each file of a cell was last written."""
    return {str(path): path.stat().st_mtime_ns for path in (out / "cells" / name).rglob("*") if path.name != ".lock"}


def test_json_is_one_line_and_the_numbers_are_those_of_the_runs(many: Path, played: Path, unskew: Command) -> None:
    said = unskew("compare", many, *SMALL, "--metric", "best", "--out", played, "--json")
    assert (said.code, said.out.count("\n")) == (0, 1)
    found = json.loads(said.out)
    assert (found["metric"], list(found["finding"])) == ("best", [""])
    for row, method in zip(found["rows"], ("fedavg", "moon")):
        for seed in ("0", "1"):
            summary = toys.manifest(one(played, f"{method}-s{seed}"))["finished"]
            assert {key: row[key][seed] for key in ("best", "final", "mean_last10")} == {
                key: summary[key] for key in ("best", "final", "mean_last10")
            }
    words = Path(found["report"]).read_text().split()
    assert words[:2] == ["many", "best"]
    assert sorted(words[2:]) == sorted(finished(played))


def test_the_table_shows_the_current_grid_only(many: Path, played: Path, unskew: Command) -> None:
    assert unskew("compare", many, *SMALL[:2], "--methods", "moon", "--seeds", "1", "--out", played).code == 0
    assert [line.split(",")[1] for line in (played / "table.csv").read_text().splitlines()] == ["method", "moon"]
    assert len(finished(played)) == 4


def test_a_selection_reads_the_test_rows_at_validations_round(many: Path, played: Path, unskew: Command) -> None:
    said = unskew("compare", many, *SMALL, "--select", "validation", "--out", played, "--json")
    rows = toys.rows_of(one(played, "fedavg-s0"))
    rows = rows[(rows["who"] == "server") & (rows["metric"] == "accuracy") & (rows["round"] > 0)]
    by = {split: dict(zip(of["round"], of["value"])) for split, of in rows.groupby("split")}
    best = max(by["validation"], key=lambda round: (by["validation"][round], -round))
    found = json.loads(said.out)
    assert found["metric"] == "selected"
    assert found["rows"][0]["selected"]["0"] == by["test"][best]
    assert found["rows"][0]["validation"]["0"] == by["validation"][best]
    assert "chosen on 20 % of the training rows" in (played / "table.md").read_text()
    assert not {"best", "final", "mean_last10"} & set(found["rows"][0])


def test_failing_cells_are_told_and_the_others_go_on(
    many: Path, played: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cell's process is killed long before its end, another's folder is broken, a third is missing."""
    endless, raw = tmp_path / "endless.yaml", yaml.safe_load(many.read_text())
    raw["compare"]["tune"] = {"moon": {"rounds": [100000]}}
    endless.write_text(yaml.safe_dump(raw))
    cells = grids.load(str(endless), list(SMALL[:2]), {"methods": ["moon"]}).cells
    dies, broken = (played / "cells" / cell.name for cell in cells)
    one(played, "moon-s1").rename(broken)
    (broken / "config.yaml").write_text(yaml.safe_dump(cells[1].experiment.resolved()))
    (broken / "checkpoint" / "manifest.json").write_text("{")
    shutil.rmtree(one(played, "moon-s0"))
    missing = one(played, "fedavg-s1")
    shutil.rmtree(missing)

    def kill(self: TerminalProgress, cell: grids.Cell, round: int, accuracy: float | None, best: float | None) -> None:
        for worker in workers() if cell.name == dies.name else ():
            os.kill(worker, signal.SIGKILL)

    monkeypatch.setattr(TerminalProgress, "told", kill)
    said = unskew("compare", endless, *SMALL, "--out", played, "--jobs", "1")
    assert said.code == 2
    assert "Traceback" not in said.err
    assert "moon rounds=100000 is left out: 2 of 2 seeds failed." in said.out
    for name in ("table.csv", "table.md"):
        text = (played / name).read_text().replace("\\", "")
        assert "seed 0 failed: its process ended unexpectedly (exit code -9)" in text
        assert "manifest.json is not readable; move" in text
    assert finished(played) == {missing.name, one(played, "fedavg-s0").name}


def test_when_every_cell_fails_the_reason_is_the_answer(
    many: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "play", lambda cells, *a, **k: {cell.name: "no data there" for cell in cells})
    said = unskew("compare", many, "--out", tmp_path / "out")
    assert (said.code, said.out) == (2, "")
    assert said.err == "unskew: every run failed:\nno data there\n"
    assert not (tmp_path / "out").exists()


def test_ctrl_c_lets_every_run_save_and_says_how_to_go_on(
    many: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: dict[str, int] = {}

    def stop(self: TerminalProgress, cell: grids.Cell, round: int, accuracy: float | None, best: float | None) -> None:
        rounds[cell.name] = round
        if round >= 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(TerminalProgress, "told", stop)
    calm = ("rounds=100000", "checkpoint.seconds=1000", "--methods", "fedavg,moon", "--seeds", "0", "--jobs", "1")
    said = unskew("compare", many, *calm, "--out", tmp_path / "out")
    assert (said.code, said.out) == (130, "")
    assert said.err.splitlines()[-1].startswith("unskew: stopped; the same command goes on")
    assert "Traceback" not in said.err
    assert not (tmp_path / "out" / "workers.log").exists(), "a process had something to say"
    assert workers() == []
    for name, round in rounds.items():
        assert rounds_saved(tmp_path / "out" / "cells" / name) >= round


def test_a_worker_ignores_ctrl_c_and_saves_when_nobody_listens_any_more(many: Path, tmp_path: Path) -> None:
    """The parent was killed: both of its ends are closed in the middle of a run."""
    endless = ["rounds=100000", "checkpoint.seconds=1000"]
    (cell,) = grids.load(str(many), endless, {"methods": ["moon"], "seeds": "0"}).cells
    folder = tmp_path / "cell"
    request = {"folder": str(folder), "experiment": cell.experiment.resolved(), "name": "x", "data_dir": None}
    command = [sys.executable, "-P", "-m", "unskew.compare.grid_worker"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            told = next(line for line in map(json.loads, process.stdout) if line["what"] == "round")
            process.send_signal(signal.SIGINT)
            after = next(line for line in map(json.loads, process.stdout) if line["round"] > told["round"] + 3)
            process.stdin.close()
            process.stdout.close()
            assert process.wait(PATIENCE) == 130
        finally:
            process.kill()
    assert rounds_saved(folder) > after["round"]


def test_two_comparisons_do_not_share_a_folder(
    many: Path, played: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.compare.folder_lock.PATIENCE", 0.0)
    with alone(played):
        said = unskew("compare", many, *SMALL, "--out", played)
    assert said.code == 2
    assert "another process is writing this comparison" in said.err


def test_cores_are_filled_whatever_the_number_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "cores", lambda: 8)
    experiment = grids.load("demo", ["device=cpu"]).cells[0].experiment
    assert process_pool.share_out([experiment] * 20, None) == (8, 1)
    assert process_pool.share_out([experiment] * 3, None) == (3, 2)
    assert process_pool.share_out([experiment] * 20, 2) == (2, 4)
    assert process_pool.share_out([], None) == (1, 8)


def test_the_live_table_follows_every_seed(many: Path) -> None:
    grid = grids.load(str(many), ["rounds=4"], {"methods": ["fedavg", "moon"]})
    file = io.StringIO()
    screen = TerminalProgress(Console(file=file, force_terminal=True, width=100))
    screen.begin(grid.cells, {grid.cells[0].name}, 1)
    screen.told(grid.cells[1], 0, None, None)
    screen.told(grid.cells[1], 3, 71.25, 80.0)
    screen.over(grid.cells[2], "no memory")
    screen.end()
    for word in ("seed 1", "moon", "3/4 71.25 %", "failed", "waits", "left"):
        assert word in file.getvalue()
