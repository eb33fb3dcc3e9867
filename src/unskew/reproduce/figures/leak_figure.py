"""FLea's figure 9: exposure, distance correlation, and what a decoder and a context attack make of what was shared.

The attacks are those of `unskew audit`, on what a run recorded; its answer is kept in the run's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.audit import save_audit
from unskew.audit.audit_run import Audit, audit
from unskew.audit.budget import Budget
from unskew.audit.metrics.exposure import exposure
from unskew.base.errors import UserError
from unskew.reproduce.figures.figure_style import INK, legend_beside, marks, panels, styled
from unskew.reproduce.figures.paper_figure import all_of, caption, check_some, missing, wanted
from unskew.reproduce.target_cells import FinishedCell
from unskew.results import recorded_messages

COLUMNS = ["dataset", "series", "seed", "panel", "line", "x", "y"]
BUDGET = Budget(attacks=(), membership="none")
PANELS = {
    "exposure": ("(a) exposure", "communication round", "pairs of clients, %"),
    "c": ("(b) distance correlation", "communication round", "c, mean of the clients"),
    "decoder": ("(c) decoder", "share of its training, %", "training MSE, pixels from 0 to 1"),
    "context": ("(d) context", "items that the attacker learned from", "contexts named, %"),
}
KINDS = {"features": "latest", "statistics": "all", "raw": "all"}  # what is passed on, and which uploads it holds
SIZE = (330.0, 250.0)


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """dataset, series, seed, panel, line, x, y; a run that recorded nothing has no attacks."""
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
    found = _audited(p)
    for leak in found.leaks if found else ():
        attack, _, where = leak.attack.partition("/")
        line = f"{p.method}, {where.replace('-', ' ')}"
        if (attack, leak.metric) == ("decoder", "matching loss"):
            told = sum(leak.attack == o.attack and o.metric == "matching loss" for o in found.leaks)  # type: ignore[union-attr]
            yield "decoder", line, round(100 * (leak.restart + 1) / told, 1), round(leak.value, 5)
        if leak.metric == "context accuracy":
            yield "context", line, int(leak.space.split()[0]), round(leak.value, 2)


def _audited(p: FinishedCell) -> Audit | None:
    """The run's audit with the budget above, made if it is not there; None if the run recorded nothing."""
    try:
        kept = save_audit.read(p.run.folder)
        if kept.budget == BUDGET:
            return kept
    except UserError:
        pass
    if not recorded_messages.read(p.run.folder):
        return None
    found = audit(p.run.folder, BUDGET, data_dir=p.data_dir)
    save_audit.write(found)
    return found


@styled
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """Four panels, those without rows left out and named."""
    check_some(frame, name)
    frame = frame[frame["seed"] == frame["seed"].iloc[0]]
    shown = [panel for panel in PANELS if panel in set(frame["panel"])]
    absent = missing(all_of(wanted(name)[0], frame["series"]), [""], [(s, "") for s in frame["series"].unique()])
    absent = "; ".join(filter(None, [absent, *(PANELS[p][0] for p in PANELS if p not in shown)]))
    what = "Attacks on what was shared in the recorded rounds; pictures are on the page of unskew audit. Exposure is "
    what += "that of the ledger: a mean reaches a client when it first takes part."
    rows = 2 if len(shown) > 2 else 1
    text, columns = caption(frame, what, absent, note), -(-len(shown) // rows)
    figure, places = panels(rows, columns, SIZE, title, text, left=64, right=180, between=84)
    for axes, panel in zip(places, shown):
        _panel(axes, frame[frame["panel"] == panel], panel)
    for axes in places[len(shown) :]:
        axes.set_visible(False)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, panel: str) -> None:
    """A colour per method, dashes per round."""
    methods = list(rows["series"].unique())
    colours = {method: mark.colour for method, mark in marks(methods).items()}
    for method in methods:
        lines = rows[rows["series"] == method].groupby("line", sort=False)
        for (line, one), dashes in zip(lines, cycle(("-", (0, (2, 2)), (0, (6, 2))))):
            one = one.sort_values("x")
            axes.plot(one["x"], one["y"], color=colours[method], linestyle=dashes, label=line, gid=f"line {line}",
                      marker="o" if panel == "context" else None)  # fmt: skip
    title, below, beside = PANELS[panel]
    axes.set_title(title, loc="left", pad=8, color=INK)
    axes.set_xlabel(below)
    axes.set_ylabel(beside)
    axes.grid(axis="y")
    axes.set_ylim(bottom=0 if panel in ("exposure", "decoder") else None)
    if panel == "context":
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    legend_beside(axes)
