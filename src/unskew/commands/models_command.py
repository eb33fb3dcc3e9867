"""`unskew models [NAME]`: list the available models, or the shape at every cut of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.commands.shared_options import Imports, Json

if TYPE_CHECKING:
    from unskew.describe.describe_model import ModelDescription

OTHER_MODELS = (
    "also timm:NAME (pip install 'unskew[vision]') and, from Python, any nn.Sequential whose children are the blocks: "
    "us.run(experiment, data=..., model=nn.Sequential(body, head))"
)


def models(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="built-in model or timm:NAME")] = None,
    shape: Annotated[
        str | None,
        typer.Option("--shape", metavar="SHAPE", help="input shape, such as 3,32,32 (default: the model's usual)"),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="number of classes (default: the model's usual)")
    ] = None,
    imports: Imports = None,
    as_json: Json = False,
) -> None:
    """List models, or describe one: parameters, blocks, shapes."""
    from unskew import models as zoo
    from unskew.describe.describe_model import describe, parse_shape

    input_shape = parse_shape(shape) if shape else None
    if name is None:
        names = list(zoo.ZOO)
        described = (
            [describe(name) for name in names] if input_shape is None else _models_for(names, input_shape, classes)
        )
        _print_json(described) if as_json else _print_table(described)
        return
    model = describe(name, input_shape, classes)
    _print_json(model) if as_json else _print_model(model)


def _models_for(names: list[str], shape: tuple[int, ...], classes: int | None) -> list[ModelDescription]:
    """The models that accept rows of this shape."""
    from unskew.base.errors import UserError
    from unskew.describe.describe_model import describe

    accepting = []
    for name in names:
        try:
            accepting.append(describe(name, shape, classes))
        except UserError:
            continue
    return accepting


def _print_table(models: list[ModelDescription]) -> None:
    from unskew.describe.describe_model import format_shape
    from unskew.describe.terminal_tables import console, show_table

    out, rows, cuts = console(), [], []
    for model in models:
        norm = "yes" if model.batchnorm else "no"
        feature = f"cut {model.feature}: {format_shape(model.blocks[model.feature - 1].shape)}"
        rows.append((model.name, f"{model.parameters:,}", _input(model), str(len(model.blocks)), feature, norm))
        cuts.append((model.name, " ".join(format_shape(block.shape) for block in model.blocks), _shapes(model)))
    show_table(
        out, ("model", "parameters", "input", "blocks", "feature", "BatchNorm"), tuple(rows), ("model", "parameters")
    )
    show_table(out, ("model", "shape after each block", "accepts"), tuple(cuts), ("model",))
    out.print(OTHER_MODELS, markup=False)


def _print_model(model: ModelDescription) -> None:
    from unskew.describe.describe_model import format_shape
    from unskew.describe.terminal_tables import console, show_table

    out = console()
    out.print(f"[bold]{model.name}[/bold]  {model.parameters:,} parameters on {_input(model)}")
    out.print(model.summary, markup=False)
    rows = [("0", format_shape(model.shape), "", "the input")]
    for block in model.blocks:
        last = " (the logits)" if block.cut == len(model.blocks) else ""
        mark = " (the feature)" if block.cut == model.feature else last
        rows.append((f"{block.cut}{mark}", format_shape(block.shape), f"{block.parameters:,}", block.layers))
    show_table(out, ("cut", "shape", "parameters", "layers of the block"), tuple(rows), ("cut", "shape"))
    norm = (
        "has BatchNorm: set model.batchnorm to average, local, frozen or group" if model.batchnorm else "no BatchNorm"
    )
    accepts = f"accepts {', '.join(model.takes)}" if model.takes else "for other input shapes use --shape"
    out.print(f"{norm}; {accepts}", markup=False)


def _shapes(model: ModelDescription) -> str:
    """The input shapes that a model accepts, without the names of the datasets."""
    return " ".join(words.split()[-1] for words in model.takes)


def _input(model: ModelDescription) -> str:
    from unskew.describe.describe_model import format_shape

    return f"{format_shape(model.shape)}, {model.classes} classes"


def _print_json(models: ModelDescription | list[ModelDescription]) -> None:
    typer.echo(json.dumps([model.record() for model in models] if isinstance(models, list) else models.record()))
