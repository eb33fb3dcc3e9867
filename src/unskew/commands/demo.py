"""`unskew demo`: a comparison that needs no data and about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.compare import Jobs, Json, play_and_tell


def demo(
    out: Annotated[Path, typer.Option(help="folder of all runs")] = Path("runs/demo"),
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Compare six methods on skewed digits, with a report.

    20 clients hold two classes each; FedAvg, FedProx, SCAFFOLD, MOON, FedLMD and FedLMD-Tf, two seeds; about a minute.
    """
    from unskew.compare import grid as grids

    play_and_tell(grids.load("demo"), out, jobs, as_json, None)
