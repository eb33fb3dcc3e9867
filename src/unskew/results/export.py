"""A run's model as one file for other programs: a torch.export program or ONNX, for any number of rows at once."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from unskew.errors import UserError
from unskew.results.load import Loaded

Format = Literal["torch", "onnx"]
ENDING: dict[Format, str] = {"torch": ".pt2", "onnx": ".onnx"}
ABOUT = "about.json"  # beside the program: class names, and the mean and std that inputs are standardised with


def export(run: Loaded, format: Format = "torch", out: Path | None = None) -> Path:
    """Write the model, which takes rows [batch, ...] as `prepare` gives them and answers logits [batch, classes]."""
    file = out or run.folder / f"model{ENDING[format]}"
    if format == "onnx":
        _need_onnx()
    if not file.parent.is_dir():
        raise UserError(f"--out: expected a folder that exists, found {file.parent}; make it first")
    model = run.model
    rows = torch.zeros(2, *run.about["shape"])
    rows = rows.to(next(iter(model.parameters())).dtype)
    half = file.with_name(file.name + ".tmp")
    write = _write_torch if format == "torch" else _write_onnx
    try:
        write(model, rows, half, json.dumps({key: run.about.get(key) for key in ("classes", "shape", "mean", "std")}))
        half.replace(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror}); choose another --out") from error
    finally:
        half.unlink(missing_ok=True)
    return file


def _write_torch(model: nn.Sequential, rows: Tensor, file: Path, about: str) -> None:
    batch = ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(model, (rows,), dynamic_shapes=batch)
    with file.open("wb") as opened:  # a name that does not end in .pt2 would be warned about
        torch.export.save(program, opened, extra_files={ABOUT: about})


def _write_onnx(model: nn.Sequential, rows: Tensor, file: Path, about: str) -> None:
    program = torch.onnx.export(
        model,
        (rows,),
        dynamo=True,
        input_names=["rows"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        verbose=False,
    )
    if program is None:
        raise UserError("torch.onnx.export gave no program; use --format torch")
    program.model.metadata_props[ABOUT] = about
    program.save(file, external_data=False)


def _need_onnx() -> None:
    for name in ("onnx", "onnxscript"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UserError(
                f"--format onnx: expected the package {name}, found {error}; type pip install 'unskew[onnx]', or use "
                "--format torch"
            ) from error
