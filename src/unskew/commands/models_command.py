"""`unskew models [NAME]`: the nets that are there, and the shape at every cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from unskew.describe.describe_model import ModelDescription

MORE = (
    "also timm:NAME (pip install 'unskew[vision]'), and from Python any nn.Sequential whose members are the blocks: "
    "us.run(experiment, data=..., model=nn.Sequential(body, head))"
)


def models(
    name: Annotated[str | None, typer.Argument(help="a net of the zoo or timm:NAME; without it a table of all")] = None,
    shape: Annotated[str | None, typer.Option(help="rows, such as 3,32,32; the net's usual rows without it")] = None,
    classes: Annotated[int | None, typer.Option(min=2, help="classes; the usual number without it")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON line instead")] = False,
) -> None:
    """Show the models: parameters, blocks, the shape at every cut."""
    from unskew import models as zoo
    from unskew.describe.describe_model import describe, parse_shape

    rows = parse_shape(shape) if shape else None
    if name is None:
        found = [describe(each) for each in zoo.ZOO] if rows is None else _fitting(list(zoo.ZOO), rows, classes)
        _print_json(found) if as_json else _table(found)
        return
    one = describe(name, rows, classes)
    _print_json(one) if as_json else _page(one)


def _fitting(names: list[str], rows: tuple[int, ...], classes: int | None) -> list[ModelDescription]:
    """The nets that take rows of this shape."""
    from unskew.base.errors import UserError
    from unskew.describe.describe_model import describe

    found = []
    for name in names:
        try:
            found.append(describe(name, rows, classes))
        except UserError:
            continue
    return found


def _table(found: list[ModelDescription]) -> None:
    from unskew.describe.describe_model import written
    from unskew.describe.terminal_tables import console, show_table

    out, rows, cuts = console(), [], []
    for one in found:
        norm = "yes" if one.batchnorm else "no"
        feature = f"cut {one.feature}: {written(one.blocks[one.feature - 1].shape)}"
        rows.append((one.name, f"{one.parameters:,}", _on(one), str(len(one.blocks)), feature, norm))
        cuts.append((one.name, " ".join(written(block.shape) for block in one.blocks), _shapes(one)))
    show_table(
        out, ("model", "parameters", "on", "blocks", "feature", "BatchNorm"), tuple(rows), ("model", "parameters")
    )
    show_table(out, ("model", "shape after each block", "takes"), tuple(cuts), ("model",))
    out.print(MORE, markup=False)


def _page(one: ModelDescription) -> None:
    from unskew.describe.describe_model import written
    from unskew.describe.terminal_tables import console, show_table

    out = console()
    out.print(f"[bold]{one.name}[/bold]  {one.parameters:,} parameters on {_on(one)}")
    out.print(one.told, markup=False)
    rows = [("0", written(one.shape), "", "the input")]
    for block in one.blocks:
        last = " (the logits)" if block.cut == len(one.blocks) else ""
        mark = " (the feature)" if block.cut == one.feature else last
        rows.append((f"{block.cut}{mark}", written(block.shape), f"{block.parameters:,}", block.layers))
    show_table(out, ("cut", "shape", "parameters", "layers of the block"), tuple(rows), ("cut", "shape"))
    norm = "has BatchNorm: model.batchnorm is average, local, frozen or group" if one.batchnorm else "has no BatchNorm"
    out.print(f"{norm}; {'takes ' + ', '.join(one.takes) if one.takes else 'other rows: --shape'}", markup=False)


def _shapes(one: ModelDescription) -> str:
    """The shapes of the rows that a net takes, without their names."""
    return " ".join(words.split()[-1] for words in one.takes)


def _on(one: ModelDescription) -> str:
    from unskew.describe.describe_model import written

    return f"{written(one.shape)}, {one.classes} classes"


def _print_json(found: ModelDescription | list[ModelDescription]) -> None:
    from dataclasses import asdict

    def plain(one: ModelDescription) -> dict[str, object]:
        return asdict(one) | {"parameters": one.parameters, "feature": one.feature, "takes": one.takes}

    typer.echo(json.dumps([plain(one) for one in found] if isinstance(found, list) else plain(found)))
