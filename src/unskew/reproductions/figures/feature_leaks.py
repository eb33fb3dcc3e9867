"""FLea's figure 9: exposure, distance correlation, and a decoder and a context attack on the shared features.

The attacks are those of `unskew audit` on a run's recorded messages; the audit is saved in the run's folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import cycle

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.audits import save_audit
from unskew.audits.audit_run import Audit, audit
from unskew.audits.budget import Budget
from unskew.audits.metrics.exposure import exposure
from unskew.base.errors import UserError
from unskew.reproductions.figures.figure_style import INK, legend_right, line_styles, panels, with_figure_style
from unskew.reproductions.figures.paper_figure import (
    caption,
    check_not_empty,
    in_recipe_order,
    missing_series,
    recipe_labels,
)
from unskew.reproductions.target_cells import FinishedCell
from unskew.results import recorded_messages

COLUMNS = ["dataset", "series", "seed", "panel", "line", "x", "y"]
BUDGET = Budget(attacks=(), membership="none")
PANELS = {
    "exposure": ("(a) exposure", "communication round", "pairs of clients, %"),
    "c": ("(b) distance correlation", "communication round", "c, mean over clients"),
    "decoder": ("(c) decoder", "share of its training, %", "training MSE, pixels from 0 to 1"),
    "context": ("(d) context", "items the attacker learned from", "contexts identified, %"),
}
KINDS = {"features": "latest", "statistics": "all", "raw": "all"}  # kind that is sent down -> which uploads it contains
SIZE = (330.0, 250.0)


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """The table with the columns COLUMNS; a run without recorded messages has no attacks."""
    rows = [
        (p.run.config.data.name, p.method, p.seed, *point)
        for p in runs
        for point in (*_exposure(p), *_correlation(p), *_attacks(p))
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


Point = tuple[str, str, float, float]


def _exposure(p: FinishedCell) -> Iterator[Point]:
    ledger, clients = p.run.ledger, int(p.run.clients["client"].nunique())
    for kind, pool in KINDS.items():
        if ((ledger["kind"] == kind) & (ledger["direction"] == "down")).any():
            table = exposure(ledger, kind, clients, pool)  # type: ignore[arg-type]
            yield from (("exposure", p.method, int(t), round(v, 3)) for t, v in zip(table["round"], table["value"]))


def _correlation(p: FinishedCell) -> Iterator[Point]:
    rows = p.run.metrics[p.run.metrics["metric"] == "flea/c"]
    for t, c in rows.groupby("round")["value"].mean().items():
        yield "c", p.method, int(t), round(float(c), 4)  # type: ignore[call-overload]


def _attacks(p: FinishedCell) -> Iterator[Point]:
    run_audit = _read_or_run_audit(p)
    leaks = run_audit.leaks if run_audit else ()
    for leak in leaks:
        attack, _, where = leak.attack.partition("/")
        line = f"{p.method}, {where.replace('-', ' ')}"
        if (attack, leak.metric) == ("decoder", "matching loss"):
            same = [other for other in leaks if (other.attack, other.metric) == (leak.attack, leak.metric)]
            yield "decoder", line, round(100 * (leak.restart + 1) / len(same), 1), round(leak.value, 5)
        if leak.metric == "context accuracy":
            yield "context", line, int(leak.space.split()[0]), round(leak.value, 2)


def _read_or_run_audit(p: FinishedCell) -> Audit | None:
    """The run's audit with BUDGET, computed and saved if there is none; None if the run recorded no messages."""
    with contextlib.suppress(UserError):
        for saved in save_audit.read_all(p.run.folder):
            if saved.budget == BUDGET:
                return saved
    if not recorded_messages.read(p.run.folder):
        return None
    result = audit(p.run.folder, BUDGET, data_dir=p.data_dir)
    save_audit.write(result)
    return result


@with_figure_style
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """Up to four panels; those without rows are left out and listed as missing."""
    check_not_empty(frame, name)
    frame = frame[frame["seed"] == frame["seed"].iloc[0]]
    shown = [panel for panel in PANELS if panel in set(frame["panel"])]
    absent = missing_series(
        in_recipe_order(recipe_labels(name)[0], frame["series"]), [""], [(s, "") for s in frame["series"].unique()]
    )
    absent = "; ".join(filter(None, [absent, *(PANELS[p][0] for p in PANELS if p not in shown)]))
    content = "Attacks on what was shared in the recorded rounds; for pictures, see the page of unskew audit. Exposure "
    content += "follows the ledger: a client receives the means when it first takes part."
    rows = 2 if len(shown) > 2 else 1
    text, columns = caption(frame, content, absent, note), -(-len(shown) // rows)
    figure, panel_axes = panels(rows, columns, SIZE, title, text, left=64, right=180, between=84)
    for axes, panel in zip(panel_axes, shown):
        _panel(axes, frame[frame["panel"] == panel], panel)
    for axes in panel_axes[len(shown) :]:
        axes.set_visible(False)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, panel: str) -> None:
    """One colour per method, one line style per round."""
    methods = list(rows["series"].unique())
    colours = {method: mark.colour for method, mark in line_styles(methods).items()}
    for method in methods:
        lines = rows[rows["series"] == method].groupby("line", sort=False)
        for (line, one), dashes in zip(lines, cycle(("-", (0, (2, 2)), (0, (6, 2))))):
            one = one.sort_values("x")
            axes.plot(one["x"], one["y"], color=colours[method], linestyle=dashes, label=line, gid=f"line {line}",
                      marker="o" if panel == "context" else None)  # fmt: skip
    title, x_label, y_label = PANELS[panel]
    axes.set_title(title, loc="left", pad=8, color=INK)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(axis="y")
    axes.set_ylim(bottom=0 if panel in ("exposure", "decoder") else None)
    if panel == "context":
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    legend_right(axes)
