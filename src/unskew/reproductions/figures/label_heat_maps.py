"""FedLMD's figure 2: heat maps of labels by round, held by the sampled clients and predicted by each model."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.reports.figures.heat_maps import MAX_NAMED
from unskew.reports.plot_frames import label_counts_by_client
from unskew.reproductions.figures.figure_style import INK, MUTED, panels, with_figure_style
from unskew.reproductions.figures.paper_figure import (
    caption,
    check_not_empty,
    in_recipe_order,
    missing_series,
    recipe_labels,
)
from unskew.reproductions.target_cells import FinishedCell
from unskew.results.load_run import LoadedRun

COLUMNS = ["dataset", "series", "seed", "round", "label", "name", "count"]
TRAINED = "training rows"  # the series of the rows that clients train on; the other series are methods
ROUNDS = 100  # as in the paper's figure
COLOURS = LinearSegmentedColormap.from_list("rows", ["#f7f8f9", "#9cc7e6", "#1f77b4", "#08305c"])


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """The table with the columns COLUMNS, for one seed, because each seed samples other clients.

    A series is a method, with its predictions on the test set, or the rows that the sampled clients train on.
    """
    seeds = [p.seed for p in runs]
    chosen = max(sorted(set(seeds)), key=seeds.count, default=0)  # the smallest seed among those with the most runs
    runs = [p for p in runs if p.seed == chosen]
    tables = [_tidy(p, p.method, predicted(p.run)) for p in runs]
    if not tables:
        return pd.DataFrame(columns=COLUMNS)
    return pd.concat([_tidy(runs[0], TRAINED, trained(runs[0].run)), *tables], ignore_index=True)[COLUMNS]


def predicted(run: LoadedRun) -> pd.DataFrame:
    """Rounds x labels: number of test rows for which the model predicts the label."""
    rows = run.metrics[(run.metrics["split"] == "test") & run.metrics["metric"].str.startswith("predicted/")]
    rows = rows.assign(label=rows["metric"].str.removeprefix("predicted/").astype(int))
    return rows[rows["round"] > 0].pivot(index="round", columns="label", values="value")


def trained(run: LoadedRun) -> pd.DataFrame:
    """Rounds x labels: training rows of the clients that received the model in that round."""
    ledger = run.ledger
    sent = (ledger["phase"] == "train") & (ledger["direction"] == "down") & (ledger["part"] == "model")
    sampled = ledger.loc[sent, ["round", "client"]].drop_duplicates()
    return sampled.join(label_counts_by_client(run), on="client").drop(columns="client").groupby("round").sum()


def _tidy(cell: FinishedCell, series: str, table: pd.DataFrame) -> pd.DataFrame:
    rows = table.loc[:ROUNDS].reset_index().melt("round", var_name="label", value_name="count")
    rows = rows.astype({"label": int, "count": int}).sort_values(["round", "label"])
    names = rows["label"].map(dict(enumerate(cell.run.about["classes"])))
    return rows.assign(dataset=cell.run.config.data.name, series=series, seed=cell.seed, name=names)


@with_figure_style
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """One map below the other; the predictions of all methods share a colour scale."""
    check_not_empty(frame, name)
    available = list(frame["series"].unique())
    series = in_recipe_order([TRAINED, *recipe_labels(name)[0]], available)
    shown = [each for each in series if each in available]
    absent = missing_series(series, [""], [(each, "") for each in available])
    content = "Darker: more rows of that label. One column per round; empty rounds were not evaluated."
    figure, panel_axes = panels(
        len(shown), 1, (720.0, 150.0), title, caption(frame, content, absent, note), _left_margin(frame), 120
    )
    vmax = frame.loc[frame["series"] != TRAINED, "count"].max()
    for axes, each in zip(panel_axes, shown):
        rows = frame[frame["series"] == each]
        heading = "training rows of the sampled clients" if each == TRAINED else f"{each}: predictions on the test set"
        _draw_map(axes, rows, heading, rows["count"].max() if each == TRAINED else vmax)
    panel_axes[-1].set_xlabel("communication round")
    return figure


def _left_margin(frame: pd.DataFrame) -> float:
    return 34.0 + 7 * min(max(len(str(name)) for name in frame["name"]) + 2, 16)


def _draw_map(axes: Axes, rows: pd.DataFrame, title: str, vmax: float) -> None:
    table = rows.pivot(index="label", columns="round", values="count")
    first, last, labels = int(table.columns.min()), int(table.columns.max()), len(table)
    table = table.reindex(columns=range(first, last + 1))
    extent = (first - 0.5, last + 0.5, labels - 0.5, -0.5)
    image = axes.imshow(table, COLOURS, aspect="auto", interpolation="none", extent=extent, vmin=0, vmax=vmax)
    axes.set_title(title, loc="left", pad=6, color=INK)
    axes.set_ylabel("label")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    if labels <= MAX_NAMED:
        names = rows.drop_duplicates("label").set_index("label")["name"]
        axes.set_yticks(list(table.index), [f"{name} {k}"[-16:] if str(k) != str(name) else str(k)
                                            for k, name in names.loc[table.index].items()])  # fmt: skip
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.spines[:].set_visible(False)
    scale = axes.inset_axes((1.02, 0.0, 0.018, 1.0))
    bar = axes.figure.colorbar(image, cax=scale, label="rows")
    bar.outline.set_visible(False)
    scale.tick_params(length=0, labelcolor=MUTED, labelsize=10)
