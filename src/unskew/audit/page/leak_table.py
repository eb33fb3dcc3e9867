"""The table: a row per run and attack; what the run was worth and what it sent, then a column per metric and space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from unskew.audit.page.metric_titles import column, known
from unskew.report.results_table import TableCell
from unskew.results.format_numbers import in_bytes


@dataclass(frozen=True)
class LeakRow:
    """A run under one attack, or under none."""

    label: str
    attack: str
    images: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class LeakTable:
    """Of one dataset."""

    dataset: str
    columns: tuple[str, ...]
    rows: tuple[LeakRow, ...]


def tables(means: pd.DataFrame, runs: pd.DataFrame) -> list[LeakTable]:
    """One table per dataset, in the order in which these appear."""
    names = list(dict.fromkeys([*runs["dataset"], *means["dataset"]]))
    return [_table(name, means[means["dataset"] == name], runs[runs["dataset"] == name]) for name in names]


def _table(dataset: str, means: pd.DataFrame, runs: pd.DataFrame) -> LeakTable:
    keys = [tuple(map(str, key)) for key in means[["label", "attack", "metric", "space"]].to_numpy()]
    wide = {key: value for key, value in zip(keys, means["value"].astype(float)) if not math.isnan(value)}
    columns = list(dict.fromkeys((metric, space) for _, _, metric, space in keys))
    pairs = list(dict.fromkeys((name, attack) for name, attack, _, _ in keys))
    bare = [(str(name), "–") for name in runs["label"] if name not in {label for label, _ in pairs}]
    worst = {c: _worst([v for key, v in wide.items() if key[2:] == c], c[0]) for c in columns}
    rows = [_row(pair, columns, wide, worst, means, runs) for pair in [*pairs, *bare]]
    return LeakTable(dataset, ("accuracy, %", "bytes sent", *(column(*c) for c in columns)), tuple(rows))


def _row(
    pair: tuple[str, str],
    columns: list[tuple[str, str]],
    wide: dict[tuple[str, ...], float],
    worst: dict[tuple[str, str], float | None],
    means: pd.DataFrame,
    runs: pd.DataFrame,
) -> LeakRow:
    cells = [_cell(wide.get((*pair, *c)), c[0], worst[c]) for c in columns]
    run = runs[runs["label"] == pair[0]]
    accuracy = f"{run['accuracy'].iloc[0]:.1f}" if len(run) else "–"
    sent = in_bytes(float(run["bytes"].iloc[0])) if len(run) else "–"
    images = means.loc[(means["label"] == pair[0]) & (means["attack"] == pair[1]), "images"]
    many = str(int(images.max())) if len(images) and images.max() else "–"
    return LeakRow(*pair, many, (TableCell(accuracy), TableCell(sent), *cells))


def _cell(value: float | None, metric: str, worst: float | None) -> TableCell:
    if value is None:
        return TableCell("–")
    digits = known(metric).digits
    small = digits >= 3 and 0 < abs(value) < 10**-digits
    return TableCell(f"{value:.1e}" if small else f"{value:.{digits}f}", best=value == worst)


def _worst(values: list[float], metric: str) -> float | None:
    """The largest leak of a column, where there is anything to choose from."""
    if len(set(values)) < 2:
        return None
    return max(values) if known(metric).rises else min(values)
