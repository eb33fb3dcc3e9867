"""`unskew export RUN`: the trained model as a file for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.shared_options import Imports


class ExportFormat(StrEnum):
    torch = "torch"
    onnx = "onnx"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a finished run")],
    format: Annotated[
        ExportFormat,
        typer.Option(
            "--format", metavar="FORMAT", show_default=False, help="torch (.pt2 for torch.export, the default) or onnx"
        ),
    ] = ExportFormat.torch,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="file (default: model.pt2 or model.onnx in RUN)")
    ] = None,
    imports: Imports = None,
) -> None:
    """Export a trained model with torch.export or to ONNX."""
    import warnings

    from unskew.results.load_run import load
    from unskew.results.model_export import export as write
    from unskew.results.trained_model import LOCAL_BATCHNORM

    loaded = load(run)
    if loaded.config.model.batchnorm == "local":
        typer.echo(f"note: {LOCAL_BATCHNORM}", err=True)
    with warnings.catch_warnings():  # the exporters warn about their own internals
        warnings.simplefilter("ignore")
        file = write(loaded, format.value, out)
    typer.echo(f"model saved to {file}")
