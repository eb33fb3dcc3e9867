"""Write finished runs as rows of `results/<paper>/`: one per run in accuracy.csv, one per round in curves.csv.

Rows of other runs are kept, rows of the same run are replaced, and the order of rows does not depend on when they were
added.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.comparisons.grid import Cell
from unskew.config.experiment import Experiment, expand_method
from unskew.reproductions.paper_names import skew_label, stands_for
from unskew.reproductions.paper_numbers import read
from unskew.reproductions.target_plan import TargetPlan
from unskew.results.load_run import LoadedRun
from unskew.results.recorded_csv import update_csv

if TYPE_CHECKING:
    import pandas as pd

KEY = ["table", "method", "dataset", "setting", "model", "preset", "partition_seed", "seed", "rounds"]
MEASURED = ["best", "best_round", "final", "mean_last10", "bytes_up", "bytes_down", "seconds"]
TEST_SET = ["test_rows", "largest_class"]  # for the accuracy of always predicting the largest class
ENVIRONMENT = ["jobs", "engine", "precision", "device", "versions", "commit"]
SUPERSEDED = "superseded"  # why a row is to be run again; empty for all others
ACCURACY = [*KEY[:4], "local_size", *KEY[4:6], "rules", *KEY[6:], *MEASURED, *TEST_SET, *ENVIRONMENT, SUPERSEDED]
CURVES = ["round", "accuracy", "loss", *KEY]
ORDER = ["table", "dataset", "model", "setting", "preset", "partition_seed", "method", "seed", "rounds", "round"]
DIGITS = 4
# Keys that have a column of their own, or that do not change the experiment.
NOT_IN_SETTING = {
    "data", "data.name", "model", "model.name", "partition.name", "partition.alpha", "partition.per_client",
    "partition.seed", "rounds", "device", "precision", "engine", "engine.name", "engine.workers",
}  # fmt: skip


def record(plan: TargetPlan, finished: Sequence[tuple[Cell, LoadedRun]], folder: Path) -> list[Path]:
    """Add the runs to the tables of their paper under `folder`; returns the files."""
    import pandas as pd

    # A figure may show one run in two places; it is recorded as one line.
    lines = {key_of(plan, cell): (_line(plan, cell, run), run) for cell, run in finished}
    curves = pd.concat([_curve(line, run) for line, run in lines.values()])
    files = {"accuracy.csv": pd.DataFrame([line for line, _ in lines.values()])[ACCURACY], "curves.csv": curves[CURVES]}
    for name, fresh in files.items():
        update_csv(folder / plan.target.paper / name, fresh, KEY, ORDER)
    return [folder / plan.target.paper / name for name in files]


def key_of(plan: TargetPlan, cell: Cell) -> tuple[str, ...]:
    """The key of a cell's rows as the files spell it, in the order of KEY."""
    config, draw = cell.experiment, cell.experiment.partition.seed
    run = (plan.preset, "" if draw is None else draw, config.seed, config.rounds)
    columns = (plan.target.key, config.label, config.data.name, setting_of(plan, cell), config.model.name)
    return tuple(map(str, (*columns, *run)))


def setting_of(plan: TargetPlan, cell: Cell) -> str:
    """The skew, the number of clients if columns differ by it, then the user's overrides.

    For a figure also what its recipe varies, because rows must differ by it.
    """
    words, settings = [skew_label(cell.experiment.partition)], plan.columns[cell.setting].settings
    if "partition.clients" in settings:
        words.append(f"clients={settings['partition.clients']}")
    if plan.target.is_figure:
        words += [
            f"{k}={_format_value(v)}"
            for k, v in settings.items()
            if k.partition(".")[0] not in ("data", "model", "partition", "method")
        ]
        words += changed_settings(cell.experiment)
    words += [f"{key}={_format_value(value)}" for key, value in plan.overrides if key not in NOT_IN_SETTING]
    return ";".join(dict.fromkeys(words))


def _line(plan: TargetPlan, cell: Cell, run: LoadedRun) -> dict[str, Any]:
    environment = run.environment
    measured = {name: getattr(run.summary, name) for name in MEASURED}
    return {
        **dict(zip(KEY, key_of(plan, cell))),
        "local_size": _local_size(plan, cell),
        "rules": run.config.rules,
        **{name: round(v, DIGITS) if isinstance(v, float) else v for name, v in measured.items()},
        **dict(zip(TEST_SET, run.test_set)),
        "jobs": environment.get("jobs", ""),  # unknown in runs of older versions
        "engine": environment["engine"],
        "precision": run.config.precision,
        "device": environment["device"],
        "versions": f"unskew {environment['unskew']} torch {environment['torch']}",
        "commit": environment["commit"],
        SUPERSEDED: "",
    }


def _local_size(plan: TargetPlan, cell: Cell) -> str:
    """Rows per client as printed in the paper's table for this column, or for the one that it stands in for."""
    label = plan.column_of(cell)
    printed = read(plan.target.numbers).values() if plan.target.numbers else ()
    return next((each.size for each in printed if each.column == (stands_for(label) or label)), "")


def _curve(line: dict[str, Any], run: LoadedRun) -> pd.DataFrame:
    rows = run.metrics
    rows = rows[(rows["who"] == "server") & (rows["split"] == "test") & rows["metric"].isin(["accuracy", "loss"])]
    curve = rows.pivot_table(index="round", columns="metric", values="value").reset_index().round(DIGITS)
    return curve.assign(**{name: line[name] for name in KEY})


def changed_settings(experiment: Experiment) -> list[str]:
    """Settings of the method's parts that differ from their defaults."""
    defaults = _fields(expand_method([name for name in experiment.method if isinstance(name, str)]))
    return [f"{key}={_format_value(v)}" for key, v in _fields(experiment.method).items() if defaults.get(key) != v]


def _fields(method: Sequence[Any]) -> dict[str, Any]:
    parts = [item for item in method if isinstance(item, dict)]
    return {f"{part}.{key}": v for item in parts for part, fields in item.items() for key, v in fields.items()}


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
