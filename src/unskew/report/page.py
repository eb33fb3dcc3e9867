"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import jinja2
from markupsafe import Markup

from unskew.environment import __version__
from unskew.errors import UserError, nearest
from unskew.report import facts
from unskew.report.panel import Studio
from unskew.report.sections import SECTIONS
from unskew.report.settings import Setting, settings_of
from unskew.report.words import costs, scores_of
from unskew.results.finding import METRICS, Finding, finding
from unskew.results.load import Loaded

HERE = Path(__file__).parent


def write(runs: list[Loaded], path: Path, title: str, metric: str = "mean_last10") -> Path:
    """Write the report on finished runs. metric: the accuracy that decides, see words.METRICS."""
    if metric not in METRICS:
        raise UserError(f"metric: expected one of {', '.join(METRICS)}, found {metric!r}{nearest(metric, METRICS)}")
    settings = settings_of(runs)
    studio = Studio(metric)
    text = _template().render(
        title=title,
        style=Markup((HERE / "style.css").read_text()),
        findings=[(setting.name, _finding(setting, metric), costs(setting)) for setting in settings],
        settings=[(setting.name, facts.facts(setting), facts.departures(setting)) for setting in settings],
        sections=[(section, [section.panel(setting, studio) for setting in settings]) for section in SECTIONS],
        shown=[(setting.name, facts.shown(setting)) for setting in settings],
        runs=sum(len(entry.runs) for setting in settings for entry in setting.entries),
        version=__version__,
        day=datetime.now(UTC).date().isoformat(),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); choose another --out") from error
    return path


def title_of(runs: list[Loaded]) -> str:
    """Methods and data, where nobody gave a title."""
    methods, data = (list(dict.fromkeys(names)) for names in zip(*((r.config.label, r.config.data.name) for r in runs)))
    return f"{', '.join(methods)} on {', '.join(data)}"


def _finding(setting: Setting, metric: str) -> Finding:
    return finding(scores_of(setting, metric), metric)


def _template() -> jinja2.Template:
    """Names come from users, so everything is escaped that is not the project's own markup."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    return environment.get_template("page.html")
