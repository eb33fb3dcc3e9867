"""A run's model as one file for other programs: a torch.export program or ONNX, with a dynamic batch size."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unskew.base.errors import UserError
from unskew.results.atomic_write import write_output
from unskew.results.load_run import LoadedRun

Format = Literal["torch", "onnx"]
SUFFIX: dict[Format, str] = {"torch": ".pt2", "onnx": ".onnx"}
ABOUT = "about.json"  # stored with the program: class names, and the mean and std of its inputs


def export(run: LoadedRun, format: Format = "torch", out: Path | None = None) -> Path:
    """Write the model, which maps rows [batch, ...] from `prepare` to logits [batch, classes]."""
    file = out or run.folder / f"model{SUFFIX[format]}"
    if format == "onnx":
        _check_onnx_installed()
    if not file.parent.is_dir():
        raise UserError(f"--out: expected an existing folder, found {file.parent}; create it first")
    model = run.model
    rows = torch.zeros(2, *run.about["shape"])
    rows = rows.to(next(iter(model.parameters())).dtype)
    about = json.dumps({key: run.about.get(key) for key in ("classes", "shape", "mean", "std")})
    try:
        data = _torch_bytes(model, rows, about) if format == "torch" else _onnx_bytes(model, rows, about)
    except Exception as error:  # torch.export raises many kinds, all about how the network is written
        first = str(error).strip().partition("\n")[0]
        raise UserError(
            f"model {run.config.model.name}: expected a network that torch.export can follow, found {first}; "
            "write it without control flow that depends on tensor values"
        ) from error
    write_output(file, data)
    return file


def _torch_bytes(model: nn.Sequential, rows: Tensor, about: str) -> bytes:
    program = torch.export.export(model, (rows,), dynamic_shapes=_dynamic_batch())
    memory = io.BytesIO()
    torch.export.save(program, memory, extra_files={ABOUT: about})
    return memory.getvalue()


def _onnx_bytes(model: nn.Sequential, rows: Tensor, about: str) -> bytes:
    program = torch.onnx.export(
        model,
        (rows,),
        dynamo=True,
        dynamic_shapes=_dynamic_batch(),
        input_names=["rows"],
        output_names=["logits"],
        verbose=False,
    )
    if program is None:
        raise RuntimeError("no program")
    program.model.metadata_props[ABOUT] = about
    return program.model_proto.SerializeToString()


def _dynamic_batch() -> tuple[dict[int, Any]]:
    """The first axis of the only input may have any size."""
    return ({0: torch.export.Dim("batch", min=1)},)


def _check_onnx_installed() -> None:
    for name in ("onnx", "onnxscript"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UserError(
                f"--format onnx: expected the package {name}, found {error}; type pip install 'unskew[onnx]', or use "
                "--format torch"
            ) from error
