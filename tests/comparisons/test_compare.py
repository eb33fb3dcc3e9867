"""Comparisons in real processes: killed, interrupted, with failing cells, and resumed."""

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
from unskew.comparisons import grid as grids
from unskew.comparisons import process_pool
from unskew.comparisons.folder_lock import lock_folder
from unskew.comparisons.progress import TerminalProgress

from .small_grids import FILES, SMALL, cell_folder, finished, workers

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
    pytest.mark.usefixtures("short_page"),
]


@pytest.fixture(scope="module")
def killed(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a comparison after kill -9 of its process group, with some cells finished and some not."""
    out = tmp_path_factory.mktemp("killed") / "out"
    command = [sys.executable, "-c", KILLS_ITSELF, "compare", str(many), "--out", str(out), "--jobs", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL, stderr
        yield out
    finally:
        process.kill()
        process.communicate()


# Kills itself at the first progress of the third cell, before a fourth starts: two or three cells are finished.
KILLS_ITSELF = """
import os, signal
from unskew import cli
from unskew.comparisons.progress import TerminalProgress

ended = []

def kill(self, cell, round, accuracy, best):
    if len(ended) == 2 and round:
        os.killpg(0, signal.SIGKILL)

TerminalProgress.cell_ended, TerminalProgress.update = lambda self, cell, failure: ended.append(cell), kill
cli.main()
"""


def test_a_killed_comparison_resumes_to_the_same_table(
    many: Path, killed: Path, tmp_path: Path, unskew: Command
) -> None:
    before = finished(killed)
    assert 2 <= len(before) <= 3
    times = {name: modification_times(killed, name) for name in before}
    again = unskew("compare", many, "--out", killed, "--jobs", "1")
    assert again.code == 0, again.err
    assert f"8 runs, {len(before)} already finished" in again.err
    assert {name: modification_times(killed, name) for name in before} == times, "a finished cell was run again"
    uninterrupted = unskew("compare", many, "--out", tmp_path / "uninterrupted", "--jobs", "2")
    assert uninterrupted.code == 0
    assert finished(killed) == finished(tmp_path / "uninterrupted")
    for name in FILES:
        assert (killed / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes(), name
    for name in finished(killed):
        toys.assert_same(killed / "cells" / name, tmp_path / "uninterrupted" / "cells" / name)
    assert (killed / "finding.txt").read_text().strip() in uninterrupted.out
    assert not (killed / "workers.log").exists()


def modification_times(out: Path, name: str) -> dict[str, int]:
    """Modification time of each file of a cell."""
    return {str(path): path.stat().st_mtime_ns for path in (out / "cells" / name).rglob("*") if path.name != ".lock"}


def test_json_is_one_line_with_the_numbers_of_the_runs(many: Path, grid_folder: Path, unskew: Command) -> None:
    result = unskew("compare", many, *SMALL, "--metric", "best", "--out", grid_folder, "--json")
    assert (result.code, result.out.count("\n")) == (0, 1)
    answer = json.loads(result.out)
    assert (answer["metric"], list(answer["finding"])) == ("best", [""])
    for row, method in zip(answer["rows"], ("fedavg", "moon")):
        for seed in ("0", "1"):
            summary = toys.manifest(cell_folder(grid_folder, f"{method}-s{seed}"))["finished"]
            assert {key: row[key][seed] for key in ("best", "final", "mean_last10")} == {
                key: summary[key] for key in ("best", "final", "mean_last10")
            }
    words = Path(answer["report"]).read_text().split()
    assert words[:2] == ["many", "best"]
    assert sorted(words[2:]) == sorted(finished(grid_folder))


def test_the_table_shows_the_current_grid_only(many: Path, grid_folder: Path, unskew: Command) -> None:
    assert unskew("compare", many, *SMALL[:2], "--methods", "moon", "--seeds", "1", "--out", grid_folder).code == 0
    assert [line.split(",")[1] for line in (grid_folder / "table.csv").read_text().splitlines()] == ["method", "moon"]
    assert len(finished(grid_folder)) == 4


def test_a_selection_reports_test_accuracy_at_the_best_validation_round(
    many: Path, grid_folder: Path, unskew: Command
) -> None:
    result = unskew("compare", many, *SMALL, "--select", "validation", "--out", grid_folder, "--json")
    rows = toys.rows_of(cell_folder(grid_folder, "fedavg-s0"))
    rows = rows[(rows["who"] == "server") & (rows["metric"] == "accuracy") & (rows["round"] > 0)]
    by = {split: dict(zip(of["round"], of["value"])) for split, of in rows.groupby("split")}
    best = max(by["validation"], key=lambda round: (by["validation"][round], -round))
    answer = json.loads(result.out)
    assert answer["metric"] == "selected"
    assert answer["rows"][0]["selected"]["0"] == by["test"][best]
    assert answer["rows"][0]["validation"]["0"] == by["validation"][best]
    assert "selected on held-out rows (20 % of the training set)" in (grid_folder / "table.md").read_text()
    assert not {"best", "final", "mean_last10"} & set(answer["rows"][0])


def test_failing_cells_are_reported_and_the_others_continue(
    many: Path, grid_folder: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cell's process is killed long before its end, another's folder is broken, a third is missing."""
    endless, raw = tmp_path / "endless.yaml", yaml.safe_load(many.read_text())
    raw["compare"]["tune"] = {"moon": {"rounds": [100000]}}
    endless.write_text(yaml.safe_dump(raw))
    cells = grids.load(str(endless), list(SMALL[:2]), {"methods": ["moon"]}).cells
    dies, broken = (grid_folder / "cells" / cell.name for cell in cells)
    cell_folder(grid_folder, "moon-s1").rename(broken)
    (broken / "config.yaml").write_text(yaml.safe_dump(cells[1].experiment.resolved()))
    (broken / "checkpoint" / "manifest.json").write_text("{")
    shutil.rmtree(cell_folder(grid_folder, "moon-s0"))
    missing = cell_folder(grid_folder, "fedavg-s1")
    shutil.rmtree(missing)

    def kill(self: TerminalProgress, cell: grids.Cell, round: int, accuracy: float | None, best: float | None) -> None:
        for worker in workers() if cell.name == dies.name else ():
            os.kill(worker, signal.SIGKILL)

    monkeypatch.setattr(TerminalProgress, "update", kill)
    result = unskew("compare", endless, *SMALL, "--out", grid_folder, "--jobs", "1")
    assert result.code == 2
    assert "Traceback" not in result.err
    assert "moon rounds=100000 is excluded because 2 of 2 seeds failed." in result.out
    for name in ("table.csv", "table.md"):
        text = (grid_folder / name).read_text().replace("\\", "")
        assert "seed 0 failed: its process ended unexpectedly (exit code -9)" in text
        assert "manifest.json is not readable; move" in text
    assert finished(grid_folder) == {missing.name, cell_folder(grid_folder, "fedavg-s0").name}


def test_when_every_cell_fails_the_reason_is_the_message(
    many: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        process_pool, "run_cells", lambda cells, *a, **k: {cell.name: "no data there" for cell in cells}
    )
    result = unskew("compare", many, "--out", tmp_path / "out")
    assert (result.code, result.out) == (2, "")
    assert result.err == "unskew: every run failed:\nno data there\n"
    assert not (tmp_path / "out").exists()


def test_ctrl_c_saves_every_run_and_explains_how_to_continue(
    many: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: dict[str, int] = {}

    def stop(self: TerminalProgress, cell: grids.Cell, round: int, accuracy: float | None, best: float | None) -> None:
        rounds[cell.name] = round
        if round >= 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(TerminalProgress, "update", stop)
    calm = ("rounds=100000", "checkpoint.seconds=1000", "--methods", "fedavg,moon", "--seeds", "0", "--jobs", "1")
    result = unskew("compare", many, *calm, "--out", tmp_path / "out")
    assert (result.code, result.out) == (130, "")
    assert result.err.splitlines()[-1].startswith("unskew: stopped; run the same command again")
    assert "Traceback" not in result.err
    assert not (tmp_path / "out" / "workers.log").exists(), "a worker wrote to its log"
    assert workers() == []
    for name, round in rounds.items():
        assert rounds_saved(tmp_path / "out" / "cells" / name) >= round


def test_a_worker_ignores_ctrl_c_and_saves_when_its_parent_is_gone(many: Path, tmp_path: Path) -> None:
    """The parent was killed: both ends of its pipes are closed in the middle of a run."""
    endless = ["rounds=100000", "checkpoint.seconds=1000"]
    (cell,) = grids.load(str(many), endless, {"methods": ["moon"], "seeds": "0"}).cells
    folder = tmp_path / "cell"
    request = process_pool.request_for(cell, tmp_path, "x", 1) | {"folder": str(folder)}
    command = [sys.executable, "-P", "-m", "unskew.comparisons.grid_worker"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            event = next(line for line in map(json.loads, process.stdout) if line["event"] == "round")
            process.send_signal(signal.SIGINT)
            after = next(line for line in map(json.loads, process.stdout) if line["round"] > event["round"] + 3)
            process.stdin.close()
            process.stdout.close()
            assert process.wait(PATIENCE) == 130
        finally:
            process.kill()
    assert rounds_saved(folder) > after["round"]


def test_two_comparisons_do_not_share_a_folder(
    many: Path, grid_folder: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.comparisons.folder_lock.LOCK_TIMEOUT", 0.0)
    with lock_folder(grid_folder):
        result = unskew("compare", many, *SMALL, "--out", grid_folder)
    assert result.code == 2
    assert "another process is writing to this folder" in result.err


def test_runs_and_workers_together_fill_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "core_count", lambda: 8)
    experiment = grids.load("demo", ["device=cpu"]).cells[0].experiment
    assert process_pool.split_cores([experiment] * 20, None) == (8, 1)
    assert process_pool.split_cores([experiment] * 3, None) == (3, 2)
    assert process_pool.split_cores([experiment] * 20, 2) == (2, 4)
    assert process_pool.split_cores([], None) == (1, 8)


def test_the_live_table_shows_every_seed(many: Path) -> None:
    grid = grids.load(str(many), ["rounds=4"], {"methods": ["fedavg", "moon"]})
    file = io.StringIO()
    screen = TerminalProgress(Console(file=file, force_terminal=True, width=100))
    screen.begin(grid.cells, {grid.cells[0].name}, 1)
    screen.update(grid.cells[1], 0, None, None)
    screen.update(grid.cells[1], 3, 71.25, 80.0)
    screen.cell_ended(grid.cells[2], "no memory")
    screen.end()
    for word in ("seed 1", "moon", "3/4 71.25 %", "failed", "waiting", "left"):
        assert word in file.getvalue()
