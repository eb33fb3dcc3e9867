"""The audit's page as one HTML file: headline, verdicts, pictures, utility against leak, membership, numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup

from unskew import report
from unskew.audit.leak import Leak
from unskew.audit.page import headline
from unskew.audit.page.image_grids import grids
from unskew.audit.page.leak_table import tables
from unskew.audit.page.metric_titles import RECOGNISABLE, column, known
from unskew.audit.page.page_input import PageInput, RocCurve
from unskew.audit.page.pareto_figure import on_front, pareto
from unskew.audit.page.roc_figure import colours, name_of, roc_curves
from unskew.audit.page.summarise_leaks import best_tries, by_attack, strongest, utilities
from unskew.base.environment import __version__
from unskew.report.figures.figure_layout import VARIABLES, marks
from unskew.report.report_panel import FigureRenderer, FigureSizes
from unskew.results.atomic_write import write_whole
from unskew.results.format_numbers import in_bytes, listed

HERE = Path(__file__).parent
AXES = (
    "psnr",
    "ssim",
    "auc",
    "label accuracy",
    "exposure",
    "dcor",
)  # the leak of the plot: the first that was measured
MOST = 6  # curves that can be told apart


def write(page: PageInput, path: Path) -> Path:
    """Write the page and return where."""
    best = best_tries(page.leaks)
    means, runs, studio = by_attack(best), utilities(page.runs), FigureRenderer("")
    drawn = _drawn(page.curves)
    sheets = (Path(report.__file__).parent / "style.css", HERE / "audit.css")
    text = (
        environment()
        .get_template("audit.html")
        .render(
            title=page.title,
            style=Markup("\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets)),
            finding=headline.found(best, page.verdicts),
            verdicts=sorted(page.verdicts, key=lambda verdict: list(headline.STATES).index(verdict.state)),
            states=headline.STATES,
            recognisable=f"{RECOGNISABLE:g}",
            several=len({verdict.method for verdict in page.verdicts}) > 1,
            grids=grids(page.pictures),
            plots=_plots(pd.concat([means, by_attack(best_tries(_areas(page.curves)))]), runs, studio),
            roc=_roc(drawn, len(drawn) < len(page.curves), studio),
            curves=[(name_of(curve), curve.dataset, curve.found.roc) for curve in page.curves],
            legend=[(name_of(c), VARIABLES[mark[0]]) for c, mark in zip(drawn, colours(drawn).values())],
            tables=tables(means, runs),
            skipped=page.skipped,
            facts=page.facts,
            runs=len(page.runs),
            version=__version__,
            day=datetime.now(UTC).date().isoformat(),
        )
    )
    write_whole(path, text.encode())
    return path


def _plots(means: pd.DataFrame, runs: pd.DataFrame, studio: FigureRenderer) -> list[tuple[str, FigureSizes]]:
    """Utility against leak, one figure per dataset that has a leak."""
    metric = next((name for name in AXES if (means["metric"] == name).any()), None)
    if metric is None:
        return []
    rows = strongest(means, metric).rename(columns={"value": "leak"}).merge(runs, on=["dataset", "label"])
    if rows.empty:
        return []
    rows = rows[rows["space"] == rows["space"].iloc[0]]  # one axis, one space
    return [(str(name), _plot(part, metric, runs, studio)) for name, part in rows.groupby("dataset", sort=False)]


def _areas(curves: tuple[RocCurve, ...]) -> list[Leak]:
    """What membership inference found, as rows: the plot's axis where no image was attacked."""
    return [
        Leak(c.method, c.defence, c.found.attack, c.dataset, -1, -1, "auc", "", c.found.roc.auc.value, 0)
        for c in curves
    ]


def _plot(rows: pd.DataFrame, metric: str, runs: pd.DataFrame, studio: FigureRenderer) -> FigureSizes:
    names = [str(name) for name in rows["label"]]
    here = runs[runs["dataset"] == rows["dataset"].iloc[0]]
    axis = column(metric, "").strip()
    left_out = [str(name) for name in here["label"] if name not in names]
    missing = f" Not shown, for want of an attack: {listed(left_out)}." if left_out else ""
    falls = not known(metric).rises
    several = on_front(rows["leak"].to_numpy(float), rows["accuracy"].to_numpy(float), falls).sum() > 1
    front = " Nothing beats the runs on the dashed line in both." if several else ""
    space = str(rows["space"].iloc[0])
    return studio.draw(
        partial(pareto, rows, axis, falls, marks(["", *names])),
        f"Accuracy against {axis} of the strongest attack for {listed(names)}",
        f"The strongest attack on each run, mean over its images{f' ({space})' if space else ''}. The larger a disc, "
        f"the more bytes the run sent, at most {in_bytes(float(rows['bytes'].max()))}.{front}{missing}",
        wide=True,
    )


def _drawn(curves: tuple[RocCurve, ...]) -> tuple[RocCurve, ...]:
    """All curves where a figure has room for them, else the strongest attack on each run."""
    if len(curves) <= MOST:
        return curves
    best: dict[tuple[str, ...], RocCurve] = {}
    for curve in curves:
        key = curve.dataset, curve.method, curve.defence
        if key not in best or curve.found.roc.auc.value > best[key].found.roc.auc.value:
            best[key] = curve
    return tuple(best.values())


def _roc(curves: tuple[RocCurve, ...], chosen: bool, studio: FigureRenderer) -> FigureSizes | None:
    if not curves:
        return None
    which = "Of each run the attack with the largest area; the table has all. " if chosen else ""
    few = min(curve.found.roc.non_members for curve in curves)
    return studio.draw(
        partial(roc_curves, curves),
        f"True against false positive rate of membership inference for {listed([name_of(c) for c in curves])}",
        f"{which}Both axes are logarithmic: what counts is how far a line lies above the diagonal at the left, where "
        f"the attacker is sure. With {few} non-members the smallest false positive rate is {100 / few:.2g} %.",
        wide=True,
    )


def environment() -> jinja2.Environment:
    """Names come from users, so everything is escaped that is not the project's own markup."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
