"""FLea's figure 8: the mixing weights that the plan draws for one batch of a client."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from unskew.client.plan import Plan
from unskew.protocol.part import Sizes
from unskew.reproductions.figures.figure_style import INK, panels, with_figure_style
from unskew.reproductions.figures.paper_figure import caption, check_not_empty
from unskew.reproductions.target_cells import PlannedCell

COLUMNS = ["dataset", "series", "seed", "row", "beta"]
ROUND, CLIENT, CLASSES = 2, 0, 10  # round 1 has no buffer to mix with


def data(cells: list[PlannedCell]) -> pd.DataFrame:
    """The table with the columns COLUMNS, for the first batch of client 0 in round 2."""
    rows: list[tuple] = []
    for cell in cells:
        experiment = cell.experiment
        batch = experiment.local.batch
        plan = Plan(experiment.seed)
        part = next(p for p in experiment.create_method().parts if p.name == "flea")
        drawn = plan.part_draws(part, "steps", ROUND, CLIENT, Sizes(batch, 1, batch, CLASSES, {}))["beta"][0]
        rows += [("any data", cell.method, cell.seed, i, round(float(b), 4)) for i, b in enumerate(drawn)]
    return pd.DataFrame(rows, columns=COLUMNS)


@with_figure_style
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """One stem per row of the batch."""
    check_not_empty(frame, name)
    rows = frame[frame["seed"] == frame["seed"].iloc[0]]
    content = f"Mixing weights of {len(rows)} rows, each drawn from Beta(2, 2)."
    figure, (axes,) = panels(1, 1, (560.0, 240.0), title, caption(rows, content, "", note), right=30)
    axes.vlines(rows["row"], 0, rows["beta"], color="#9cc7e6", linewidth=2)
    axes.plot(rows["row"], rows["beta"], "o", color="#1f77b4", gid="points beta")
    axes.axhline(rows["beta"].mean(), color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_ylim(0, 1)
    axes.set_xlabel("row of the batch")
    axes.set_ylabel("mixing weight, β")
    return figure
