"""A figure's own table in `results/<paper>/`, for a figure that shows more than accuracy by round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.reproduce.figures.label_heat_maps import TRAINED
from unskew.reproduce.record_runs import KEY, key_of
from unskew.reproduce.target_catalogue import Target
from unskew.reproduce.target_plan import TargetPlan

if TYPE_CHECKING:
    import pandas as pd

ABOUT = [name for name in KEY if name not in ("table", "method")]  # what tells runs apart, besides the series


def keyed(plan: TargetPlan, data: pd.DataFrame) -> pd.DataFrame:
    """The table with what tells its runs from others, so that it is not drawn for them."""
    by_seed, by_run = {}, {}
    for cell in plan.grid.cells:
        key = dict(zip(KEY, key_of(plan, cell)))
        by_seed[cell.seed] = key  # for a series that is no method's
        for dataset in (cell.experiment.data.name, None):  # None: a table without that column
            by_run[cell.label, dataset, cell.seed] = key
    rows = data.to_dict("records")
    keys = [by_run.get((r["series"], r.get("dataset"), r["seed"]), by_seed[r["seed"]]) for r in rows]
    return data.assign(**{name: [key[name] for key in keys] for name in ABOUT if name not in data})


def datasets(target: Target, folder: Path) -> frozenset[str]:
    """Those that the recorded table has rows of."""
    import pandas as pd

    path = folder / target.paper / f"{target.key}.csv"
    table = pd.read_csv(path, dtype=str) if path.is_file() else pd.DataFrame()
    return frozenset(table["dataset"].dropna()) if "dataset" in table else frozenset()


def read(plan: TargetPlan, folder: Path, how: str) -> tuple[TargetPlan, pd.DataFrame]:
    """The recorded table of the plan's runs; the plan's `missing` names methods that are not in it. how: to play it."""
    import pandas as pd

    path = folder / plan.target.paper / f"{plan.target.key}.csv"
    how = f"play it: {how}"
    if not path.is_file():
        raise UserError(f"{path}: not there, and {plan.target.name} shows more than accuracies by round; {how}")
    table = pd.read_csv(path, keep_default_na=False)
    if lacks := [name for name in (*ABOUT, "series") if name not in table]:
        raise UserError(
            f"{path}: expected the columns {', '.join(ABOUT)} and series, found no {', '.join(lacks)}; {how}"
        )
    wanted = {tuple(dict(zip(KEY, key_of(plan, cell)))[name] for name in ABOUT) for cell in plan.grid.cells}
    table = table[[tuple(map(str, row)) in wanted for row in table[ABOUT].to_numpy()]]
    table = table[table["series"].isin([TRAINED, *plan.grid.compare.methods])]
    if table.empty:
        raise UserError(f"{path}: expected rows of {'; '.join(', '.join(key) for key in wanted)}, found none; {how}")
    gone = [f"{name}: not recorded" for name in plan.grid.compare.methods if name not in set(table["series"])]
    return replace(plan, missing=(*plan.missing, *gone)), table
