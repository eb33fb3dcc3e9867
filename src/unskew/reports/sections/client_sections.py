"""Clients and classes: the data of each client, accuracy by class, predicted classes."""

from __future__ import annotations

import math
from functools import partial

from unskew.data import label_skew
from unskew.reports import plot_frames
from unskew.reports.figures import heat_maps, interval_plots
from unskew.reports.figures.figure_layout import line_styles
from unskew.reports.group_runs import Setting
from unskew.reports.report_panel import TEST_NOT_USED, FigureRenderer, ReportPanel
from unskew.results.client_accuracy import worst_tenth


def holdings(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """The data of each client, for the first seed."""
    counts, seed = plot_frames.label_counts_by_client(setting.first), setting.first.config.seed
    skew = label_skew.summary(counts.to_numpy())
    merged = " Each column averages several clients." if len(counts) > heat_maps.MAX_COLUMNS else ""
    drawings = [
        renderer.draw(
            partial(heat_maps.holdings_map, counts, setting.classes),
            f"Share of each class at each of {len(counts)} clients",
            f"A column with a single strong cell is a client that holds only one class. Darkest: "
            f"{100 * heat_maps.shares_of(counts).max():.0f} %. Seed {seed}.{merged}",
        ),
        renderer.draw(
            partial(interval_plots.sizes_histogram, counts.sum(axis=1)),
            f"Histogram of the rows of {len(counts)} clients",
            f"A wide spread means that some clients have little to train on. Seed {seed}.",
        ),
    ]
    numbers = [
        ("clients", _client_count(skew["clients"], setting.first.config.partition.clients)),
        ("rows per client", f"{skew['size_min']}–{skew['size_max']}, median {skew['size_median']:g}"),
        ("classes missing per client", f"{skew['missing_mean']:.1f} of {counts.shape[1]}"),
        ("distance to the overall mix (EMD, 0 to 2)", f"{skew['emd']:.2f}"),
    ]
    if skew["empty"]:
        numbers.append(("clients without rows", f"{skew['empty']}"))
    return ReportPanel(setting.name, drawings, numbers=numbers)


def _client_count(counted: int, clients: int | None) -> str:
    return f"{clients:,}, of which {counted:,} were counted" if clients and clients > counted else f"{counted}"


def by_client(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """Accuracy for each client: how it is distributed, and its worst tenth."""
    frame, colours = plot_frames.accuracy_by_client(setting), line_styles([entry.label for entry in setting.entries])
    if frame.empty:
        return ReportPanel(
            setting.name, notes=["In the last round no client was scored: none that took part has test rows."]
        )
    weakest = frame.groupby(["method", "seed"], sort=False)["value"].agg(lambda values: worst_tenth(list(values)))
    weakest = weakest.groupby("method", sort=False).mean()
    on_own = [line for line in setting.first.about["header"] if line.startswith("evaluate ") and "own test" in line]
    rows = "On each client's own test rows." if on_own else "Test accuracy by class, weighted by each client's classes."
    drawing = renderer.draw(
        partial(interval_plots.client_boxes, frame, colours),
        "Accuracy for each client by method",
        f"{rows} Bar: median client; box: middle half; line: 5th to 95th percentile. Mean of the worst tenth of the "
        f"clients: {', '.join(f'{name} {value:.0f} %' for name, value in weakest.items())}.",
    )
    return ReportPanel(setting.name, [drawing], [TEST_NOT_USED] if setting.rounds_selected else [])


def classes(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """Accuracy by class: final model by method, and every method by round."""
    names, final = setting.classes, plot_frames.final_accuracy(setting)
    drawings = [
        renderer.draw(
            partial(heat_maps.class_methods, final, names),
            "Accuracy of the final model by method and class",
            "A faint cell is a class that the final model hardly learned, however high its mean accuracy.",
            wide=True,
        ),
    ]
    for entry in setting.entries:
        last = dict(zip(names, final.loc[[entry.label]].to_numpy(float)[0]))
        weak, strong = extremes(last)
        drawing = renderer.draw(
            partial(
                heat_maps.class_rounds,
                plot_frames.by_class(entry, "accuracy"),
                names,
                f"{entry.label}: accuracy by class",
                100,
            ),
            f"{entry.label}: accuracy by class and round",
            f"At the end, class {weak} is weakest ({last[weak]:.0f} %) and class {strong} strongest "
            f"({last[strong]:.0f} %). Darkest: 100 %.",
        )
        drawings.append(drawing)
    return ReportPanel(setting.name, drawings, [TEST_NOT_USED] if setting.rounds_selected else [])


def predictions(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """Share of predictions by class, as in FedLMD's Fig. 2."""
    names = setting.classes
    tables = {entry.label: plot_frames.by_class(entry, "predicted") for entry in setting.entries}
    top = max(float(table.max().max()) for table in tables.values())
    drawings = []
    for label, table in tables.items():
        last = dict(zip(names, table.to_numpy(float)[-1]))
        most = extremes(last)[1]
        drawing = renderer.draw(
            partial(heat_maps.class_rounds, table, names, f"{label}: share of predictions", top),
            f"{label}: share of the predictions that go to each class, by round",
            f"At the end, class {most} is predicted most often ({last[most]:.0f} %); the highest share in any round is "
            f"{table.max().max():.0f} %. Darkest: {top:.0f} %.",
        )
        drawings.append(drawing)
    return ReportPanel(setting.name, drawings)


def extremes(by_class: dict[str, float]) -> tuple[str, str]:
    """The classes with the lowest and the highest value; NaN marks a class without test rows.

    >>> extremes({"cat": 3.0, "dog": 1.0, "eel": math.nan})
    ('dog', 'cat')
    """
    known = [name for name, value in by_class.items() if math.isfinite(value)] or list(by_class)
    return min(known, key=by_class.__getitem__), max(known, key=by_class.__getitem__)
