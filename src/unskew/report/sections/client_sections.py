"""Clients and classes: who holds what, what is learnt of it, what is predicted."""

from __future__ import annotations

import math
from functools import partial

from unskew.data import label_skew
from unskew.report import plot_frames
from unskew.report.figures import heat_maps, interval_plots
from unskew.report.figures.figure_layout import marks
from unskew.report.group_runs import Setting
from unskew.report.report_panel import NOT_USED, FigureRenderer, ReportPanel


def holdings(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """Who holds what, with the first seed."""
    counts, seed = plot_frames.holdings(setting.first), setting.first.config.seed
    found = label_skew.summary(counts.to_numpy())
    merged = " A column is the mean of neighbours." if len(counts) > heat_maps.MOST else ""
    drawings = [
        studio.draw(
            partial(heat_maps.holdings_map, counts, setting.classes),
            f"Share of each class at each of {len(counts)} clients",
            f"A column with one strong cell is a client that knows one class. Full colour is "
            f"{100 * heat_maps.shares_of(counts).max():.0f} %, seed {seed}.{merged}",
        ),
        studio.draw(
            partial(interval_plots.sizes_histogram, counts.sum(axis=1)),
            f"Histogram of the rows of {len(counts)} clients",
            f"The wider this spreads, the less some clients have to train on. Seed {seed}.",
        ),
    ]
    numbers = [
        ("clients", _how_many(found["clients"], setting.first.config.partition.clients)),
        ("rows each", f"{found['size_min']}–{found['size_max']}, median {found['size_median']:g}"),
        ("classes missing at a client", f"{found['missing_mean']:.1f} of {counts.shape[1]}"),
        ("distance to the overall mix (EMD, 0 to 2)", f"{found['emd']:.2f}"),
    ]
    if found["empty"]:
        numbers.append(("clients without rows", f"{found['empty']}"))
    return ReportPanel(setting.name, drawings, numbers=numbers)


def _how_many(counted: int, clients: int | None) -> str:
    return f"{clients:,}, of which {counted:,} were counted" if clients and clients > counted else f"{counted}"


def classes(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """Accuracy by class: final model by method, clients' own mixes, and every method by round."""
    names, final = setting.classes, plot_frames.final_accuracy(setting)
    own, colours = plot_frames.own_classes(setting), marks([entry.label for entry in setting.entries])
    weakest = own.groupby("method", sort=False)["value"].quantile(0.05)
    drawings = [
        studio.draw(
            partial(heat_maps.class_methods, final, names),
            "Accuracy of the final model by method and class",
            "A faint cell is a class that the final model does not know, whatever its mean says.",
            wide=True,
        ),
        studio.draw(
            partial(interval_plots.own_classes_boxes, own, colours),
            "Accuracy on each client's own classes by method",
            "Per-class test accuracy weighted by each client's mix. Stroke: median client; box: middle half; line: 5th "
            f"to 95th percentile. The 5th: {', '.join(f'{name} {value:.0f} %' for name, value in weakest.items())}.",
        ),
    ]
    for entry in setting.entries:
        last = dict(zip(names, final.loc[[entry.label]].to_numpy(float)[0]))
        weak, strong = extremes(last)
        drawing = studio.draw(
            partial(
                heat_maps.class_rounds,
                plot_frames.by_class(entry, "accuracy"),
                names,
                f"{entry.label}: accuracy by class",
                100,
            ),
            f"{entry.label}: accuracy by class and round",
            f"At the end {weak} is weakest ({last[weak]:.0f} %), {strong} strongest ({last[strong]:.0f} %). "
            "Full colour is 100 %.",
        )
        drawings.append(drawing)
    return ReportPanel(setting.name, drawings, [NOT_USED] if setting.selected else [])


def predictions(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """Labels the model predicts, as in FedLMD's Fig. 2."""
    names = setting.classes
    tables = {entry.label: plot_frames.by_class(entry, "predicted") for entry in setting.entries}
    top = max(float(table.max().max()) for table in tables.values())
    drawings = []
    for label, table in tables.items():
        last = dict(zip(names, table.to_numpy(float)[-1]))
        most = extremes(last)[1]
        drawing = studio.draw(
            partial(heat_maps.class_rounds, table, names, f"{label}: share of predictions", top),
            f"{label}: share of the predictions that go to each class, by round",
            f"At the end {most} gets most, {last[most]:.0f} %; at worst one class got {table.max().max():.0f} %. "
            f"Full colour is {top:.0f} %.",
        )
        drawings.append(drawing)
    return ReportPanel(setting.name, drawings)


def extremes(by_class: dict[str, float]) -> tuple[str, str]:
    """The classes with the lowest and the highest value; a class without test rows has none.

    >>> extremes({"cat": 3.0, "dog": 1.0, "eel": math.nan})
    ('dog', 'cat')
    """
    known = [name for name, value in by_class.items() if math.isfinite(value)] or list(by_class)
    return min(known, key=by_class.__getitem__), max(known, key=by_class.__getitem__)
