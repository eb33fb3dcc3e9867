"""A run's model as one file for other programs: a torch.export program or ONNX, for any number of rows at once."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unskew.base.errors import UserError
from unskew.results.atomic_write import write_whole
from unskew.results.load_run import LoadedRun

Format = Literal["torch", "onnx"]
ENDING: dict[Format, str] = {"torch": ".pt2", "onnx": ".onnx"}
ABOUT = "about.json"  # beside the program: class names, and the mean and std that inputs are standardised with


def export(run: LoadedRun, format: Format = "torch", out: Path | None = None) -> Path:
    """Write the model, which takes rows [batch, ...] as `prepare` gives them and answers logits [batch, classes]."""
    file = out or run.folder / f"model{ENDING[format]}"
    if format == "onnx":
        _need_onnx()
    if not file.parent.is_dir():
        raise UserError(f"--out: expected a folder that exists, found {file.parent}; make it first")
    model = run.model
    rows = torch.zeros(2, *run.about["shape"])
    rows = rows.to(next(iter(model.parameters())).dtype)
    about = json.dumps({key: run.about.get(key) for key in ("classes", "shape", "mean", "std")})
    try:
        data = _torch_bytes(model, rows, about) if format == "torch" else _onnx_bytes(model, rows, about)
    except Exception as error:  # of many kinds, and all of them about how the network is written
        first = str(error).strip().partition("\n")[0]
        raise UserError(
            f"model {run.config.model.name}: expected a network that torch.export can follow, found {first}; "
            "write it without decisions that depend on the numbers it sees"
        ) from error
    write_whole(file, data)
    return file


def _torch_bytes(model: nn.Sequential, rows: Tensor, about: str) -> bytes:
    program = torch.export.export(model, (rows,), dynamic_shapes=_any_number())
    memory = io.BytesIO()
    torch.export.save(program, memory, extra_files={ABOUT: about})
    return memory.getvalue()


def _onnx_bytes(model: nn.Sequential, rows: Tensor, about: str) -> bytes:
    program = torch.onnx.export(
        model,
        (rows,),
        dynamo=True,
        dynamic_shapes=_any_number(),
        input_names=["rows"],
        output_names=["logits"],
        verbose=False,
    )
    if program is None:
        raise RuntimeError("no program")
    program.model.metadata_props[ABOUT] = about
    return program.model_proto.SerializeToString()


def _any_number() -> tuple[dict[int, Any]]:
    """The first axis of the only input may have any size."""
    return ({0: torch.export.Dim("batch", min=1)},)


def _need_onnx() -> None:
    for name in ("onnx", "onnxscript"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UserError(
                f"--format onnx: expected the package {name}, found {error}; type pip install 'unskew[onnx]', or use "
                "--format torch"
            ) from error
