"""`unskew demo`: a comparison on embedded data, in a minute or two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.base.paths import folder_path
from unskew.commands.compare_command import run_and_print
from unskew.commands.shared_options import Jobs, Json

if TYPE_CHECKING:
    from unskew.comparisons.comparison_table import ComparisonTable
    from unskew.reports.report_page import ExtraSection

RUNS = Path("runs/demo")


def demo(
    out: Annotated[Path, typer.Option(parser=folder_path, metavar="DIR", help="folder for all runs")] = RUNS,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Compare eight methods on skewed digits and write a report.

    Trains FedAvg, FedProx, SCAFFOLD, MOON, FedLMD, FedLMD-Tf, FLea and FedMix on 20 clients that hold two classes
    each, with three seeds, in a minute or two. Then attacks the features and means that FLea and FedMix share, and the
    weights that FedAvg sends.
    """
    from unskew.comparisons import grid as grids

    run_and_print(grids.load("demo"), out, jobs, as_json, None, _attack)


def _attack(out: Path, table: ComparisonTable) -> tuple[ExtraSection, Path]:
    """Audit the runs of the demo."""
    from unskew.audits.demo_attacks import demo_section

    return demo_section(out, [run for row in table.rows for run in row.runs])
