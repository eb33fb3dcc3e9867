"""Writes the audit page as one HTML file: headline, verdicts, images, utility versus leakage, membership, numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup

from unskew import reports
from unskew.audits.leak import Leak
from unskew.audits.page import headline
from unskew.audits.page.image_grids import grids
from unskew.audits.page.leak_table import tables
from unskew.audits.page.metric_titles import RECOGNISABLE, column_title, metric_title
from unskew.audits.page.page_input import PageInput, RocCurve
from unskew.audits.page.pareto_figure import pareto, pareto_front
from unskew.audits.page.roc_figure import curve_name, curve_styles, roc_curves
from unskew.audits.page.summarise_leaks import best_tries, mean_by_attack, strongest, utilities
from unskew.audits.verdict import STATES
from unskew.base.environment import __version__
from unskew.reports.figures.figure_layout import VARIABLES, line_styles
from unskew.reports.report_panel import FigureRenderer, FigureSizes
from unskew.results.atomic_write import write_output
from unskew.results.format_numbers import in_bytes, listed

TEMPLATES = Path(__file__).parent
LEAK_AXES = ("psnr", "ssim", "auc", "label accuracy", "exposure", "dcor")  # the plot uses the first that was measured
MAX_CURVES = 6  # more curves in one figure cannot be distinguished


def write(page: PageInput, path: Path) -> Path:
    """Write the page; returns its path."""
    best = best_tries(page.leaks)
    means, runs, renderer = mean_by_attack(best), utilities(page.runs), FigureRenderer("")
    drawn_curves = _curves_to_draw(page.curves)
    sheets = (Path(reports.__file__).parent / "style.css", TEMPLATES / "audit.css")
    text = (
        environment()
        .get_template("audit.html")
        .render(
            title=page.title,
            style=Markup("\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets)),
            finding=headline.headline(best, page.verdicts),
            verdicts=sorted(page.verdicts, key=lambda verdict: list(STATES).index(verdict.state)),
            states=STATES,
            recognisable=f"{RECOGNISABLE:g}",
            several=len({verdict.method for verdict in page.verdicts}) > 1,
            grids=grids(page.pictures),
            plots=_plots(pd.concat([means, mean_by_attack(best_tries(_auc_leaks(page.curves)))]), runs, renderer),
            roc=_roc(drawn_curves, len(drawn_curves) < len(page.curves), renderer),
            curves=[(curve_name(curve), curve.dataset, curve.result.roc) for curve in page.curves],
            legend=[
                (curve_name(c), VARIABLES[mark[0]])
                for c, mark in zip(drawn_curves, curve_styles(drawn_curves).values())
            ],
            tables=tables(means, runs),
            skipped=page.skipped,
            facts=page.facts,
            runs=len(page.runs),
            version=__version__,
            day=datetime.now(UTC).date().isoformat(),
        )
    )
    write_output(path, text.encode())
    return path


def _plots(means: pd.DataFrame, runs: pd.DataFrame, renderer: FigureRenderer) -> list[tuple[str, FigureSizes]]:
    """Utility versus leakage, one figure per dataset with a measured leak."""
    metric = next((name for name in LEAK_AXES if (means["metric"] == name).any()), None)
    if metric is None:
        return []
    rows = strongest(means, metric).rename(columns={"value": "leak"}).merge(runs, on=["dataset", "label"])
    if rows.empty:
        return []
    rows = rows[rows["space"] == rows["space"].iloc[0]]  # values in different spaces cannot share an axis
    return [(str(name), _plot(part, metric, runs, renderer)) for name, part in rows.groupby("dataset", sort=False)]


def _auc_leaks(curves: tuple[RocCurve, ...]) -> list[Leak]:
    """Membership AUCs as leaks: they are the plot's axis if no image was attacked."""
    return [
        Leak(c.method, c.defence, c.result.attack, c.dataset, -1, -1, "auc", "", c.result.roc.auc.value, 0)
        for c in curves
    ]


def _plot(rows: pd.DataFrame, metric: str, runs: pd.DataFrame, renderer: FigureRenderer) -> FigureSizes:
    names = [str(name) for name in rows["label"]]
    in_dataset = runs[runs["dataset"] == rows["dataset"].iloc[0]]
    axis = column_title(metric, "").strip()
    not_attacked = [str(name) for name in in_dataset["label"] if name not in names]
    missing = f" Not shown because not attacked: {listed(not_attacked)}." if not_attacked else ""
    falls = not metric_title(metric).rises
    several = pareto_front(rows["leak"].to_numpy(float), rows["accuracy"].to_numpy(float), falls).sum() > 1
    front = " No run is both more accurate and less leaky than one on the dashed line." if several else ""
    space = str(rows["space"].iloc[0])
    return renderer.draw(
        partial(pareto, rows, axis, falls, line_styles(["", *names])),
        f"Accuracy against {axis} of the strongest attack for {listed(names)}",
        f"The strongest attack on each run, mean over its images{f' ({space})' if space else ''}. The size of a disc "
        f"shows the bytes that the run sent, at most {in_bytes(float(rows['bytes'].max()))}.{front}{missing}",
        wide=True,
    )


def _curves_to_draw(curves: tuple[RocCurve, ...]) -> tuple[RocCurve, ...]:
    """All curves if they fit into one figure, else that of the strongest attack on each run."""
    if len(curves) <= MAX_CURVES:
        return curves
    best: dict[tuple[str, ...], RocCurve] = {}
    for curve in curves:
        key = curve.dataset, curve.method, curve.defence
        if key not in best or curve.result.roc.auc.value > best[key].result.roc.auc.value:
            best[key] = curve
    return tuple(best.values())


def _roc(curves: tuple[RocCurve, ...], selected: bool, renderer: FigureRenderer) -> FigureSizes | None:
    """The ROC figure. selected: whether curves are only the strongest attack on each run."""
    if not curves:
        return None
    selection = "For each run only the attack with the largest AUC; the table has all attacks. " if selected else ""
    fewest = min(curve.result.roc.non_members for curve in curves)
    return renderer.draw(
        partial(roc_curves, curves),
        f"True against false positive rate of membership inference for {listed([curve_name(c) for c in curves])}",
        f"{selection}Both axes are logarithmic: what matters is how far a curve is above the diagonal at the left, "
        "where the attacker is most confident. "
        f"With {fewest} non-members the smallest measurable false positive rate is {100 / fewest:.2g} %.",
        wide=True,
    )


def environment() -> jinja2.Environment:
    """Templates with autoescaping, because names come from users; only the project's own markup is not escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
