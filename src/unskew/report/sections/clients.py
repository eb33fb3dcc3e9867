"""Clients and classes: who holds what, what is learnt of it, what is predicted."""

from __future__ import annotations

import math
from functools import partial

from unskew.data import skew
from unskew.report import frames
from unskew.report.figures import heat, spread
from unskew.report.figures.sheet import marks
from unskew.report.panel import NOT_USED, Panel, Studio
from unskew.report.settings import Setting


def holdings(setting: Setting, studio: Studio) -> Panel:
    """Who holds what, with the first seed."""
    counts, seed = frames.holdings(setting.first), setting.first.config.seed
    found = skew.summary(counts.to_numpy())
    merged = " A column is the mean of neighbours." if len(counts) > heat.MOST else ""
    drawings = [
        studio.draw(
            partial(heat.holdings_map, counts, setting.classes),
            f"Share of each class at each of {len(counts)} clients",
            f"A column with one strong cell is a client that knows one class. Full colour is "
            f"{100 * heat.shares_of(counts).max():.0f} %, seed {seed}.{merged}",
        ),
        studio.draw(
            partial(spread.sizes_histogram, counts.sum(axis=1)),
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
    return Panel(setting.name, drawings, numbers=numbers)


def _how_many(counted: int, clients: int | None) -> str:
    return f"{clients:,}, of which {counted:,} were counted" if clients and clients > counted else f"{counted}"


def classes(setting: Setting, studio: Studio) -> Panel:
    """Accuracy by class: final model by method, clients' own mixes, and every method by round."""
    names, final = setting.classes, frames.final_accuracy(setting)
    own, colours = frames.own_classes(setting), marks([entry.label for entry in setting.entries])
    weakest = own.groupby("method", sort=False)["value"].quantile(0.05)
    drawings = [
        studio.draw(
            partial(heat.class_methods, final, names),
            "Accuracy of the final model by method and class",
            "A faint cell is a class that the final model does not know, whatever its mean says.",
            wide=True,
        ),
        studio.draw(
            partial(spread.own_classes_boxes, own, colours),
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
                heat.class_rounds, frames.by_class(entry, "accuracy"), names, f"{entry.label}: accuracy by class", 100
            ),
            f"{entry.label}: accuracy by class and round",
            f"At the end {weak} is weakest ({last[weak]:.0f} %), {strong} strongest ({last[strong]:.0f} %). "
            "Full colour is 100 %.",
        )
        drawings.append(drawing)
    return Panel(setting.name, drawings, [NOT_USED] if setting.selected else [])


def predictions(setting: Setting, studio: Studio) -> Panel:
    """Labels the model predicts, as in FedLMD's Fig. 2."""
    names = setting.classes
    tables = {entry.label: frames.by_class(entry, "predicted") for entry in setting.entries}
    top = max(float(table.max().max()) for table in tables.values())
    drawings = []
    for label, table in tables.items():
        last = dict(zip(names, table.to_numpy(float)[-1]))
        most = extremes(last)[1]
        drawing = studio.draw(
            partial(heat.class_rounds, table, names, f"{label}: share of predictions", top),
            f"{label}: share of the predictions that go to each class, by round",
            f"At the end {most} gets most, {last[most]:.0f} %; at worst one class got {table.max().max():.0f} %. "
            f"Full colour is {top:.0f} %.",
        )
        drawings.append(drawing)
    return Panel(setting.name, drawings)


def extremes(by_class: dict[str, float]) -> tuple[str, str]:
    """The classes with the lowest and the highest value; a class without test rows has none.

    >>> extremes({"cat": 3.0, "dog": 1.0, "eel": math.nan})
    ('dog', 'cat')
    """
    known = [name for name, value in by_class.items() if math.isfinite(value)] or list(by_class)
    return min(known, key=by_class.__getitem__), max(known, key=by_class.__getitem__)
