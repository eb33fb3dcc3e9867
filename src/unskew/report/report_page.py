"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from unskew.base.environment import __version__
from unskew.base.errors import UserError, nearest
from unskew.report import run_facts
from unskew.report.cost_notes import costs, scores_of
from unskew.report.group_runs import ACCURACIES, Setting, settings_of
from unskew.report.report_panel import FigureRenderer, ReportPanel
from unskew.report.sections import DETAILS, RESULTS, ReportSection
from unskew.results.atomic_write import write_whole
from unskew.results.finding import Finding, finding
from unskew.results.load_run import LoadedRun

HERE = Path(__file__).parent
Filled = tuple[ReportSection, list[ReportPanel]]


class ExtraSection(NamedTuple):
    """A section that somebody else wrote, as markup."""

    anchor: str
    title: str
    body: Markup
    style: Markup


def write(runs: list[LoadedRun], path: Path, title: str, metric: str = "mean_last10") -> Path:
    """Write the report on finished runs. metric: the accuracy that decides, one of ACCURACIES."""
    if metric not in ACCURACIES:
        hint = nearest(metric, ACCURACIES)
        raise UserError(f"metric: expected one of {', '.join(ACCURACIES)}, found {metric!r}{hint}")
    settings = settings_of(runs)
    findings = [(setting.name, finding(scores_of(setting, metric), metric)) for setting in settings]
    return write_settings(settings, findings, path, title, metric)


def write_settings(
    settings: list[Setting],
    findings: list[tuple[str, Finding]],
    path: Path,
    title: str,
    metric: str,
    extra: ExtraSection | None = None,
) -> Path:
    """Write the report on settings, with what is to be said of them by name; one without runs has a finding alone."""
    studio, cost = FigureRenderer(metric), {setting.name: costs(setting) for setting in settings}
    text = _template().render(
        title=title,
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        findings=[(name, found, cost.get(name, "")) for name, found in findings],
        settings=[(setting.name, run_facts.facts(setting), run_facts.departures(setting)) for setting in settings],
        results=_filled(RESULTS, settings, studio),
        details=_filled(DETAILS, settings, studio),
        shown=[(setting.name, run_facts.shown(setting)) for setting in settings],
        extra=extra,
        runs=sum(len(entry.runs) for setting in settings for entry in setting.entries),
        version=__version__,
        day=datetime.now(UTC).date().isoformat(),
    )
    write_whole(path, text.encode())
    return path


def _filled(sections: tuple[ReportSection, ...], settings: list[Setting], studio: FigureRenderer) -> list[Filled]:
    return [(section, [section.panel(setting, studio) for setting in settings]) for section in sections]


def title_of(runs: list[LoadedRun]) -> str:
    """Methods and data, where nobody gave a title."""
    methods, data = (list(dict.fromkeys(names)) for names in zip(*((r.config.label, r.config.data.name) for r in runs)))
    return f"{', '.join(methods)} on {', '.join(data)}"


def _template() -> jinja2.Template:
    """Names come from users, so everything is escaped that is not the project's own markup."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    return environment.get_template("page.html")
