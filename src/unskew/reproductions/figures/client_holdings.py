"""FLea's figures 12 and 13: the labels and the number of rows of each client, from the splits alone without a run."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from unskew.data import label_skew
from unskew.reproductions.figures.figure_style import INK, panels, with_figure_style
from unskew.reproductions.figures.label_heat_maps import COLOURS
from unskew.reproductions.figures.paper_figure import (
    caption,
    check_not_empty,
    in_recipe_order,
    missing_series,
    recipe_labels,
)
from unskew.reproductions.target_cells import PlannedCell
from unskew.runner.prepare_run import read_data, split_rows

COLUMNS = ["dataset", "series", "setting", "seed", "client", "label", "count"]
FIRST = 100  # a map shows at most this many clients


def data(cells: list[PlannedCell]) -> pd.DataFrame:
    """A row per client and label: dataset, series, setting, seed, client, label, count."""
    tables = []
    for cell in cells:
        dataset = read_data(cell.experiment, cell.data_dir)
        parts = split_rows(cell.experiment, dataset, cell.data_dir)
        rows = [parts.rows[k] for k in range(len(parts.rows))]
        counts = label_skew.counts(rows, dataset.train.y.numpy(), len(dataset.classes))
        client, label = np.indices(counts.shape)
        table = pd.DataFrame({"client": client.ravel(), "label": label.ravel(), "count": counts.ravel()})
        table = table.assign(dataset=dataset.name, series=cell.method, setting=cell.setting, seed=cell.seed)
        tables.append(table[COLUMNS])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


@with_figure_style
def draw_maps(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """One map per dataset: clients on the x axis, labels on the y axis."""
    shown, absent = _shown_settings(frame, name)
    content = f"Darker: more rows of that label. Only the first {FIRST} clients are shown."
    figure, panel_axes = panels(len(shown), 1, (720.0, 150.0), title, caption(frame, content, absent, note), right=70)
    for axes, setting in zip(panel_axes, shown):
        rows = frame[(frame["setting"] == setting) & (frame["client"] < FIRST)]
        table = rows.pivot_table(index="label", columns="client", values="count", aggfunc="first")
        image = axes.imshow(table, COLOURS, aspect="auto", interpolation="none", origin="lower", vmin=0)
        axes.set_title(setting, loc="left", pad=6, color=INK)
        axes.set_ylabel("label")
        axes.spines[:].set_visible(False)
        bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.01, 0.0, 0.015, 1.0)), label="rows")
        bar.outline.set_visible(False)
    panel_axes[-1].set_xlabel("client")
    return figure


@with_figure_style
def draw_sizes(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """One panel per kind of split, one box per number of clients; settings are labelled `kind=clients`."""
    shown, absent = _shown_settings(frame, name)
    sizes = frame.groupby(["setting", "client"], sort=False)["count"].sum()
    kinds = list(dict.fromkeys(s.partition("=")[0] for s in shown))
    content = "Boxes: quartiles; whiskers: smallest and largest client; number: median."
    figure, panel_axes = panels(1, len(kinds), (330.0, 280.0), title, caption(frame, content, absent, note), right=40)
    for axes, kind in zip(panel_axes, kinds):
        _draw_boxes(axes, {s.partition("=")[2]: sizes[s].to_numpy() for s in shown if s.partition("=")[0] == kind})
        axes.set_title(kind, loc="left", pad=8, color=INK)
    low, high = (fn(axes.get_ylim()[i] for axes in panel_axes) for i, fn in enumerate((min, max)))
    for axes in panel_axes:
        axes.set_ylim(low, high)
    return figure


def _draw_boxes(axes: Axes, sizes: dict[str, np.ndarray]) -> None:
    plot = axes.boxplot(list(sizes.values()), whis=(0, 100), widths=0.5, patch_artist=True)
    for box in plot["boxes"]:
        box.set(facecolor="#cfe3f2", edgecolor="#1f77b4")
    for at, rows in enumerate(sizes.values(), 1):
        axes.annotate(f"{np.median(rows):g}", (at + 0.3, float(np.median(rows))), va="center", color=INK)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(range(1, len(sizes) + 1)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(list(sizes))
    axes.set_xlabel("clients")
    axes.set_ylabel("rows per client")
    axes.grid(axis="y")


def _shown_settings(frame: pd.DataFrame, name: str) -> tuple[list[str], str]:
    check_not_empty(frame, name)
    settings = in_recipe_order(recipe_labels(name)[1], frame["setting"])
    shown = [s for s in settings if s in set(frame["setting"])]
    return shown, missing_series(settings, [""], [(s, "") for s in shown])
