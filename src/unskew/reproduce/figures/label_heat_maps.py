"""Labels by round as heat maps: what the sampled clients hold, and what each model predicts. FedLMD's figure 2."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.report.figures.heat_maps import NAMED
from unskew.report.plot_frames import holdings
from unskew.reproduce.figures.figure_style import INK, MUTED, panels, styled
from unskew.reproduce.figures.paper_figure import all_of, caption, check_some, missing, wanted
from unskew.reproduce.target_cells import FinishedCell
from unskew.results.load_run import LoadedRun

COLUMNS = ["dataset", "series", "seed", "round", "label", "name", "count"]
TRAINED = "training rows"  # the series that is no method's
ROUNDS = 100  # as many as the paper shows
COLOURS = LinearSegmentedColormap.from_list("rows", ["#f7f8f9", "#9cc7e6", "#1f77b4", "#08305c"])


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """dataset, series, seed, round, label, name, count: of one seed, since seeds sample other clients.

    A series is a method, with its predictions on the test set, or the rows that the sampled clients train on.
    """
    seeds = [p.seed for p in runs]
    chosen = max(sorted(set(seeds)), key=seeds.count, default=0)  # the first of those with most runs
    runs = [p for p in runs if p.seed == chosen]
    tables = [_tidy(p, p.method, predicted(p.run)) for p in runs]
    if not tables:
        return pd.DataFrame(columns=COLUMNS)
    return pd.concat([_tidy(runs[0], TRAINED, trained(runs[0].run)), *tables], ignore_index=True)[COLUMNS]


def predicted(run: LoadedRun) -> pd.DataFrame:
    """Rounds x labels: rows of the test set that the model gives the label to."""
    rows = run.metrics[(run.metrics["split"] == "test") & run.metrics["metric"].str.startswith("predicted/")]
    rows = rows.assign(label=rows["metric"].str.removeprefix("predicted/").astype(int))
    return rows[rows["round"] > 0].pivot(index="round", columns="label", values="value")


def trained(run: LoadedRun) -> pd.DataFrame:
    """Rounds x labels: rows of the clients that were sent the model to train it."""
    ledger = run.ledger
    sent = (ledger["phase"] == "train") & (ledger["direction"] == "down") & (ledger["part"] == "model")
    sampled = ledger.loc[sent, ["round", "client"]].drop_duplicates()
    return sampled.join(holdings(run), on="client").drop(columns="client").groupby("round").sum()


def _tidy(played: FinishedCell, series: str, table: pd.DataFrame) -> pd.DataFrame:
    rows = table.loc[:ROUNDS].reset_index().melt("round", var_name="label", value_name="count")
    rows = rows.astype({"label": int, "count": int}).sort_values(["round", "label"])
    names = rows["label"].map(dict(enumerate(played.run.about["classes"])))
    return rows.assign(dataset=played.run.config.data.name, series=series, seed=played.seed, name=names)


@styled
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """A map below the other; predictions of all methods have one scale."""
    check_some(frame, name)
    there = list(frame["series"].unique())
    series = all_of([TRAINED, *wanted(name)[0]], there)
    shown = [one for one in series if one in there]
    absent = missing(series, [""], [(one, "") for one in there])
    what = "Darker: more rows of that label. A column is a round; empty ones were not evaluated."
    figure, places = panels(len(shown), 1, (720.0, 150.0), title, caption(frame, what, absent, note), _room(frame), 120)
    top = frame.loc[frame["series"] != TRAINED, "count"].max()
    for axes, one in zip(places, shown):
        rows = frame[frame["series"] == one]
        words = "training rows of the sampled clients" if one == TRAINED else f"{one}: predictions on the test set"
        _map(axes, rows, words, rows["count"].max() if one == TRAINED else top)
    places[-1].set_xlabel("communication round")
    return figure


def _room(frame: pd.DataFrame) -> float:
    return 34.0 + 7 * min(max(len(str(name)) for name in frame["name"]) + 2, 16)


def _map(axes: Axes, rows: pd.DataFrame, title: str, top: float) -> None:
    table = rows.pivot(index="label", columns="round", values="count")
    first, last, labels = int(table.columns.min()), int(table.columns.max()), len(table)
    table = table.reindex(columns=range(first, last + 1))
    extent = (first - 0.5, last + 0.5, labels - 0.5, -0.5)
    image = axes.imshow(table, COLOURS, aspect="auto", interpolation="none", extent=extent, vmin=0, vmax=top)
    axes.set_title(title, loc="left", pad=6, color=INK)
    axes.set_ylabel("label")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    if labels <= NAMED:
        names = rows.drop_duplicates("label").set_index("label")["name"]
        axes.set_yticks(list(table.index), [f"{name} {k}"[-16:] if str(k) != str(name) else str(k)
                                            for k, name in names.loc[table.index].items()])  # fmt: skip
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.spines[:].set_visible(False)
    scale = axes.inset_axes((1.02, 0.0, 0.018, 1.0))
    bar = axes.figure.colorbar(image, cax=scale, label="rows")
    bar.outline.set_visible(False)
    scale.tick_params(length=0, labelcolor=MUTED, labelsize=10)
