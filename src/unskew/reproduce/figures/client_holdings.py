"""FLea's figures 12 and 13: who holds what, and how many rows. From the splits alone; nothing is played."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from unskew.data import label_skew
from unskew.reproduce.figures.figure_style import INK, panels, styled
from unskew.reproduce.figures.label_heat_maps import COLOURS
from unskew.reproduce.figures.paper_figure import all_of, caption, check_some, missing, wanted
from unskew.reproduce.target_cells import PlannedCell
from unskew.runner.prepare_run import deal_rows, read_data

COLUMNS = ["dataset", "series", "setting", "seed", "client", "label", "count"]
FIRST = 100  # clients that a map has room for


def data(cells: list[PlannedCell]) -> pd.DataFrame:
    """dataset, series, setting, seed, client, label, count."""
    tables = []
    for cell in cells:
        dataset = read_data(cell.experiment, cell.data_dir)
        parts = deal_rows(cell.experiment, dataset, cell.data_dir)
        rows = [parts.rows[k] for k in range(len(parts.rows))]
        counts = label_skew.counts(rows, dataset.train.y.numpy(), len(dataset.classes))
        client, label = np.indices(counts.shape)
        table = pd.DataFrame({"client": client.ravel(), "label": label.ravel(), "count": counts.ravel()})
        table = table.assign(dataset=dataset.name, series=cell.method, setting=cell.setting, seed=cell.seed)
        tables.append(table[COLUMNS])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


@styled
def draw_maps(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """A map per data set, clients to the right, labels upwards."""
    shown, absent = _there(frame, name)
    what = f"Darker: more rows of that label. At most the first {FIRST} clients."
    figure, places = panels(len(shown), 1, (720.0, 150.0), title, caption(frame, what, absent, note), right=70)
    for axes, setting in zip(places, shown):
        rows = frame[(frame["setting"] == setting) & (frame["client"] < FIRST)]
        table = rows.pivot_table(index="label", columns="client", values="count", aggfunc="first")
        image = axes.imshow(table, COLOURS, aspect="auto", interpolation="none", origin="lower", vmin=0)
        axes.set_title(setting, loc="left", pad=6, color=INK)
        axes.set_ylabel("label")
        axes.spines[:].set_visible(False)
        bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.01, 0.0, 0.015, 1.0)), label="rows")
        bar.outline.set_visible(False)
    places[-1].set_xlabel("client")
    return figure


@styled
def draw_sizes(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """A panel per kind of split, a box per number of clients; labels are `kind=clients`."""
    shown, absent = _there(frame, name)
    sizes = frame.groupby(["setting", "client"], sort=False)["count"].sum()
    kinds = list(dict.fromkeys(s.partition("=")[0] for s in shown))
    what = "Boxes: quartiles; whiskers to the smallest and largest client; the number is the median."
    figure, places = panels(1, len(kinds), (330.0, 280.0), title, caption(frame, what, absent, note), right=40)
    for axes, kind in zip(places, kinds):
        _boxes(axes, {s.partition("=")[2]: sizes[s].to_numpy() for s in shown if s.partition("=")[0] == kind})
        axes.set_title(kind, loc="left", pad=8, color=INK)
    low, high = (fn(axes.get_ylim()[i] for axes in places) for i, fn in enumerate((min, max)))
    for axes in places:
        axes.set_ylim(low, high)
    return figure


def _boxes(axes: Axes, sizes: dict[str, np.ndarray]) -> None:
    found = axes.boxplot(list(sizes.values()), whis=(0, 100), widths=0.5, patch_artist=True)
    for box in found["boxes"]:
        box.set(facecolor="#cfe3f2", edgecolor="#1f77b4")
    for at, rows in enumerate(sizes.values(), 1):
        axes.annotate(f"{np.median(rows):g}", (at + 0.3, float(np.median(rows))), va="center", color=INK)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(range(1, len(sizes) + 1)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(list(sizes))
    axes.set_xlabel("clients")
    axes.set_ylabel("rows of a client")
    axes.grid(axis="y")


def _there(frame: pd.DataFrame, name: str) -> tuple[list[str], str]:
    check_some(frame, name)
    settings = all_of(wanted(name)[1], frame["setting"])
    shown = [s for s in settings if s in set(frame["setting"])]
    return shown, missing(settings, [""], [(s, "") for s in shown])
