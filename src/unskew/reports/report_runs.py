"""`us.report`: the HTML page over any finished runs; `unskew report` calls it too."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from unskew.base.errors import UserError
from unskew.reports.report_page import title_of, write
from unskew.results.load_run import LoadedRun, load


def report(
    runs: Any,
    out: str | Path = "report.html",
    *,
    title: str | None = None,
    metric: str = "mean_last10",
    skipped: Callable[[str], None] = warnings.warn,
) -> Path:
    """Write the page and return its path.

    runs: a run, a comparison, the folder of a run or a folder that contains runs, or several of these;
    title: by default methods and data; metric: mean_last10, best, final, clients_mean or worst_tenth;
    skipped: called with the reason why a folder below a given one is left out.
    """
    several = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs]
    if not several:
        raise UserError("runs: expected at least one run, comparison or folder, found none")
    loaded = [run for each in several for run in _load_each(each, skipped)]
    return write(loaded, Path(out), title or title_of(loaded), metric)


def _load_each(given: Any, skipped: Callable[[str], None]) -> Iterable[LoadedRun]:
    if isinstance(given, LoadedRun):
        return [given]
    if hasattr(given, "runs"):  # a Comparison
        return list(given.runs)
    return load_runs(Path(getattr(given, "folder", given)), skipped)


def load_runs(folder: Path, skipped: Callable[[str], None]) -> list[LoadedRun]:
    """The run in the folder itself, else all finished runs below it by name."""
    if (folder / "config.yaml").is_file():
        return [load(folder)]
    runs = []
    # Search for checkpoints: a tracker may keep a config.yaml of its own below a run.
    for manifest in sorted(folder.rglob("checkpoint/manifest.json")):
        try:
            run = load(manifest.parents[1])
            run.read_tables()
        except UserError as error:
            why, path = " ".join(str(error).split()), str(manifest.parents[1])
            skipped(f"skipped: {why if path in why else f'{path}: {why}'}")
        else:
            runs.append(run)
    if not runs:
        raise UserError(
            f"{folder}: expected the folder of a run, or a folder that contains finished runs; found none in or below "
            "it (by default runs are saved under runs/)"
        )
    return runs
