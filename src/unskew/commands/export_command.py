"""`unskew export RUN`: the trained model as a file for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ExportFormat(StrEnum):
    torch = "torch"
    onnx = "onnx"


def export(
    run: Annotated[Path, typer.Argument(help="folder of a finished run")],
    format: Annotated[
        ExportFormat, typer.Option(help="torch: a torch.export program (.pt2); onnx")
    ] = ExportFormat.torch,
    out: Annotated[
        Path | None, typer.Option(help="file to write; model.pt2 or model.onnx in the run without it")
    ] = None,
) -> None:
    """Write a run's model as one program: torch.export or ONNX."""
    import warnings

    from unskew.results.load_run import load
    from unskew.results.model_export import export as write
    from unskew.results.trained_model import LOCAL

    loaded = load(run)
    if loaded.config.model.batchnorm == "local":
        typer.echo(f"note: {LOCAL}", err=True)
    with warnings.catch_warnings():  # what the exporters say about themselves helps nobody here
        warnings.simplefilter("ignore")
        file = write(loaded, format.value, out)
    typer.echo(f"model written to {file}")
