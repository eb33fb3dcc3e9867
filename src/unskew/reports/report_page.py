"""The report: one self-contained HTML file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from unskew.base.environment import __version__
from unskew.base.errors import UserError, expected_one_of
from unskew.reports import run_facts
from unskew.reports.cost_notes import cost_sentence, runs_of, scores_of
from unskew.reports.group_runs import ACCURACIES, CLIENT_ACCURACIES, Setting, group_by_setting
from unskew.reports.report_panel import FigureRenderer, ReportPanel
from unskew.reports.sections import DETAILS, RESULTS, ReportSection
from unskew.results.atomic_write import write_output
from unskew.results.finding import Finding, finding
from unskew.results.learning import flag_unlearnt
from unskew.results.load_run import LoadedRun

FOLDER = Path(__file__).parent
SectionPanels = tuple[ReportSection, list[ReportPanel]]


class ExtraSection(NamedTuple):
    """A section from another module, as markup."""

    anchor: str
    title: str
    body: Markup
    style: Markup


def write(runs: list[LoadedRun], path: Path, title: str, metric: str = "mean_last10") -> Path:
    """Write the report on finished runs. metric: the accuracy to rank by, one of ACCURACIES."""
    known = (*ACCURACIES, *CLIENT_ACCURACIES)
    if metric not in known:
        raise UserError(f"metric: {expected_one_of(known, metric)}")
    settings = group_by_setting(runs)
    if without := next((setting.name for setting in settings if metric not in setting.measures), None):
        raise UserError(f"metric {metric}: expected accuracies by client, found none in {without}; they need runs with "
                        "evaluate.clients=true")  # fmt: skip
    findings = [
        (setting.name, flag_unlearnt(finding(scores_of(setting, metric), metric), runs_of(setting)))
        for setting in settings
    ]
    return write_settings(settings, findings, path, title, metric)


def write_settings(
    settings: list[Setting],
    findings: list[tuple[str, Finding]],
    path: Path,
    title: str,
    metric: str,
    extra: ExtraSection | None = None,
) -> Path:
    """Write the report on settings. findings: (name of the setting, finding); a setting without runs has only that."""
    renderer, cost = FigureRenderer(metric), {setting.name: cost_sentence(setting) for setting in settings}
    text = _template().render(
        title=title,
        style=Markup((FOLDER / "style.css").read_text(encoding="utf-8")),
        findings=[(name, finding, cost.get(name, "")) for name, finding in findings],
        settings=[(setting.name, run_facts.facts(setting), run_facts.departures(setting)) for setting in settings],
        results=_panels(RESULTS, settings, renderer),
        details=_panels(DETAILS, settings, renderer),
        summaries=[(setting.name, run_facts.run_summaries(setting)) for setting in settings],
        extra=extra,
        runs=sum(len(entry.runs) for setting in settings for entry in setting.entries),
        version=__version__,
        day=datetime.now(UTC).date().isoformat(),
    )
    write_output(path, text.encode())
    return path


def _panels(
    sections: tuple[ReportSection, ...], settings: list[Setting], renderer: FigureRenderer
) -> list[SectionPanels]:
    return [(section, [section.panel(setting, renderer) for setting in settings]) for section in sections]


def title_of(runs: list[LoadedRun]) -> str:
    """The default title: methods and data."""
    methods, data = (list(dict.fromkeys(names)) for names in zip(*((r.config.label, r.config.data.name) for r in runs)))
    return f"{', '.join(methods)} on {', '.join(data)}"


def _template() -> jinja2.Template:
    """The template, with escaping on, because names come from users."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    return environment.get_template("page.html")
