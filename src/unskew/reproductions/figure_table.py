"""The separate table in `results/<paper>/` of a figure that shows more than accuracy by round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.reproductions.figures.label_heat_maps import TRAINED
from unskew.reproductions.missing_cells import MissingCells
from unskew.reproductions.record_runs import KEY, key_of
from unskew.reproductions.target_catalogue import Target
from unskew.reproductions.target_plan import TargetPlan

if TYPE_CHECKING:
    import pandas as pd

RUN_COLUMNS = [name for name in KEY if name not in ("table", "method")]  # with the series, they identify a run


def with_run_columns(plan: TargetPlan, data: pd.DataFrame) -> pd.DataFrame:
    """Add the columns that identify each row's run, so that the table is not drawn for other runs."""
    by_seed, by_run = {}, {}
    for cell in plan.grid.cells:
        key = dict(zip(KEY, key_of(plan, cell)))
        by_seed[cell.seed] = key  # for a series that belongs to no method
        for dataset in (cell.experiment.data.name, None):  # None: the table has no dataset column
            by_run[cell.label, dataset, cell.seed] = key
    rows = data.to_dict("records")
    keys = [by_run.get((r["series"], r.get("dataset"), r["seed"]), by_seed[r["seed"]]) for r in rows]
    return data.assign(**{name: [key[name] for key in keys] for name in RUN_COLUMNS if name not in data})


def recorded_datasets(target: Target, folder: Path) -> frozenset[str]:
    """The datasets in the recorded table."""
    import pandas as pd

    path = folder / target.paper / f"{target.key}.csv"
    table = pd.read_csv(path, dtype=str) if path.is_file() else pd.DataFrame()
    return frozenset(table["dataset"].dropna()) if "dataset" in table else frozenset()


def read(plan: TargetPlan, folder: Path, command: str) -> tuple[TargetPlan, pd.DataFrame]:
    """The recorded table of the plan's runs; methods that are not in it are added to the plan's `missing`.

    command: the command line that runs and records the figure.
    """
    import pandas as pd

    path = folder / plan.target.paper / f"{plan.target.key}.csv"
    hint = f"to record it, run: {command}"
    if not path.is_file():
        raise UserError(f"{path}: not found; {plan.target.name} shows more than accuracies by round; {hint}")
    table = pd.read_csv(path, keep_default_na=False)
    if absent := [name for name in (*RUN_COLUMNS, "series") if name not in table]:
        raise UserError(
            f"{path}: expected the columns {', '.join(RUN_COLUMNS)} and series, found no {', '.join(absent)}; {hint}"
        )
    wanted = {tuple(dict(zip(KEY, key_of(plan, cell)))[name] for name in RUN_COLUMNS) for cell in plan.grid.cells}
    table = table[[tuple(map(str, row)) in wanted for row in table[RUN_COLUMNS].to_numpy()]]
    table = table[table["series"].isin([TRAINED, *plan.grid.compare.methods])]
    if table.empty:
        rows = "; ".join(", ".join(f"{name} {v}" for name, v in zip(RUN_COLUMNS, key) if v) for key in wanted)
        raise UserError(f"{path}: expected rows of {rows}, found none; {hint}")
    methods = tuple(name for name in plan.grid.compare.methods if name not in set(table["series"]))
    entries = (MissingCells("not recorded", methods=methods),) if methods else ()
    return replace(plan, missing=(*plan.missing, *entries)), table
