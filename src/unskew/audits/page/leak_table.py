"""The table of leaks: a row per run and attack, with accuracy, bytes, and a column per metric and space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from unskew.audits.page.metric_titles import column_title, metric_title
from unskew.reports.results_table import TableCell
from unskew.results.format_numbers import in_bytes


@dataclass(frozen=True)
class LeakRow:
    """The row of a run and one attack on it, or of a run that was not attacked."""

    label: str
    attack: str
    images: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class LeakTable:
    """The table of one dataset."""

    dataset: str
    columns: tuple[str, ...]
    rows: tuple[LeakRow, ...]


def tables(means: pd.DataFrame, runs: pd.DataFrame) -> list[LeakTable]:
    """One table per dataset, in order of first appearance."""
    names = list(dict.fromkeys([*runs["dataset"], *means["dataset"]]))
    return [_table(name, means[means["dataset"] == name], runs[runs["dataset"] == name]) for name in names]


def _table(dataset: str, means: pd.DataFrame, runs: pd.DataFrame) -> LeakTable:
    keys = [tuple(map(str, key)) for key in means[["label", "attack", "metric", "space"]].to_numpy()]
    values = {key: value for key, value in zip(keys, means["value"].astype(float)) if not math.isnan(value)}
    columns = list(dict.fromkeys((metric, space) for _, _, metric, space in keys))
    pairs = list(dict.fromkeys((name, attack) for name, attack, _, _ in keys))
    not_attacked = [(str(name), "–") for name in runs["label"] if name not in {label for label, _ in pairs}]
    largest = {c: _largest_leak([v for key, v in values.items() if key[2:] == c], c[0]) for c in columns}
    rows = [_row(pair, columns, values, largest, means, runs) for pair in [*pairs, *not_attacked]]
    return LeakTable(dataset, ("accuracy, %", "bytes sent", *(column_title(*c) for c in columns)), tuple(rows))


def _row(
    pair: tuple[str, str],
    columns: list[tuple[str, str]],
    values: dict[tuple[str, ...], float],
    largest: dict[tuple[str, str], float | None],
    means: pd.DataFrame,
    runs: pd.DataFrame,
) -> LeakRow:
    label, attack = pair
    cells = [_cell(values.get((*pair, *c)), c[0], largest[c]) for c in columns]
    run = runs[runs["label"] == label]
    accuracy = f"{run['accuracy'].iloc[0]:.1f}" if len(run) else "–"
    sent = in_bytes(float(run["bytes"].iloc[0])) if len(run) else "–"
    images = means.loc[(means["label"] == label) & (means["attack"] == attack), "images"]
    image_count = str(int(images.max())) if len(images) and images.max() else "–"
    return LeakRow(label, attack, image_count, (TableCell(accuracy), TableCell(sent), *cells))


def _cell(value: float | None, metric: str, largest: float | None) -> TableCell:
    if value is None:
        return TableCell("–")
    digits = metric_title(metric).digits
    small = digits >= 3 and 0 < abs(value) < 10**-digits
    return TableCell(f"{value:.1e}" if small else f"{value:.{digits}f}", best=value == largest)


def _largest_leak(values: list[float], metric: str) -> float | None:
    """The largest leak of a column; None if all values are equal."""
    if len(set(values)) < 2:
        return None
    return max(values) if metric_title(metric).rises else min(values)
