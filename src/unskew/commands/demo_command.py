"""`unskew demo`: a comparison that needs no data and about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.commands.compare_command import Jobs, Json, play_and_tell

if TYPE_CHECKING:
    from unskew.compare.comparison_table import ComparisonTable
    from unskew.report.report_page import ExtraSection


def demo(
    out: Annotated[Path, typer.Option(help="folder of all runs")] = Path("runs/demo"),
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Compare eight methods on skewed digits, with a report.

    20 clients hold two classes each; FedAvg, FedProx, SCAFFOLD, MOON, FedLMD, FedLMD-Tf, FLea and FedMix, two seeds; a
    minute or two.
    It ends with attacks: on the features and means that FLea and FedMix share, beside their accuracy, and on what
    FedAvg sends on a few digits.
    """
    from unskew.compare import grid as grids

    play_and_tell(grids.load("demo"), out, jobs, as_json, None, _attacked)


def _attacked(out: Path, table: ComparisonTable) -> tuple[ExtraSection, Path]:
    """What the server could have made of the messages, on a few digits."""
    from unskew.audit.demo_attacks import attacked

    return attacked(out, [run for row in table.rows for run in row.runs])
