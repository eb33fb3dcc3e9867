"""`unskew partition RECIPE`: who holds what, before an hour is spent on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from unskew.describe.describe_split import SplitDescription


def partition(
    recipe: Annotated[
        str, typer.Argument(help="a YAML file, or the name of a recipe that comes with unskew, such as quick")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, such as partition=iid partition.clients=50 seed=3")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="also draw it: a file ending in .png, .svg or .pdf")] = None,
    csv: Annotated[Path | None, typer.Option(help="also write the rows of every client and class to this file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON line instead")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie; UNSKEW_DATA without it")] = None,
) -> None:
    """Show who holds what under a recipe, without training.

    Also what the participants of a round hold together, and the work of a round. No model is built.
    """
    from unskew.config import recipe as recipes
    from unskew.describe.describe_split import look

    name, experiment = recipes.load(recipe, overrides)
    if out is not None:
        from unskew.describe import split_figure  # with matplotlib, which only a drawing needs

        split_figure.check(out)
    split = look(experiment, data_dir)
    typer.echo(json.dumps(split.numbers())) if as_json else _show(split)
    if out is not None:
        split_figure.draw(split, out, f"{name}: {split.data}, {experiment.partition.name}")
    if csv is not None:
        _write(split, csv)


def _show(split: SplitDescription) -> None:
    from unskew.describe import terminal_plot
    from unskew.describe.terminal_tables import console

    terminal, cohorts, steps = console(), split.cohorts, split.steps
    for line in split.header:
        terminal.print(line, markup=False, soft_wrap=True)
    terminal.print()
    for drawn in terminal_plot.heat_map(split.counts):
        terminal.print(drawn, soft_wrap=True)
    terminal.print()
    for line in terminal_plot.histogram(split.counts.sum(axis=1)):
        terminal.print(line, markup=False, soft_wrap=True)
    classes = split.counts.shape[1]
    some = f" ({split.participants:,} of them looked at)" if split.participants < cohorts.size else ""
    told = [
        f"a round    {cohorts.size} of {split.clients} clients{some}, who hold {cohorts.expected * classes:.1f} of "
        f"{classes} classes together on average; their mix is {cohorts.emd:.2f} from the overall one (0 to 2)",
        f"work       {steps.longest} steps for the longest client, {steps.median:g} for the median one, "
        f"{steps.total:,.0f} in a round; {steps.padding:.0%} padding in the stacked engine",
        *(f"warning    {line}" for line in split.warnings),
    ]
    terminal.print()
    for line in told:
        terminal.print(line, markup=False, soft_wrap=True, style="yellow" if line.startswith("warning") else "")


def _write(split: SplitDescription, path: Path) -> None:
    import pandas as pd

    from unskew.results.atomic_write import write_whole

    frame = pd.DataFrame(split.counts, columns=list(split.classes))
    frame.insert(0, "client", list(split.counted))
    write_whole(path, frame.to_csv(index=False).encode())
