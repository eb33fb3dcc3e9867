"""`unskew partition RECIPE`: how a recipe splits the data, to look at before training on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.commands.shared_options import DataDir, Imports, Json, Overrides, Recipe

if TYPE_CHECKING:
    from unskew.describe.describe_split import SplitDescription


def partition(
    recipe: Recipe,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="also draw a figure (.png, .svg or .pdf)")] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also write the row counts per client and class")
    ] = None,
    as_json: Json = False,
    imports: Imports = None,
    data_dir: DataDir = None,
) -> None:
    """Show how a recipe splits the data, without training.

    Prints the classes that each client holds, how many of them the clients of one round cover together, and the work
    of a round.
    """
    from unskew.config import recipe as recipes
    from unskew.describe.describe_split import describe

    name, experiment = recipes.load(recipe, overrides)
    if out is not None:
        from unskew.describe import split_figure  # imports matplotlib

        split_figure.check(out)
    split = describe(experiment, data_dir)
    typer.echo(json.dumps(split.numbers())) if as_json else _print(split)
    if out is not None:
        split_figure.draw(split, out, f"{name}: {split.data}, {experiment.partition.name}")
    if csv is not None:
        _write_csv(split, csv)


def _print(split: SplitDescription) -> None:
    from unskew.describe import terminal_plot
    from unskew.describe.terminal_tables import console

    terminal, cohorts, steps = console(), split.cohorts, split.steps
    for line in split.header:
        terminal.print(line, markup=False, soft_wrap=True)
    terminal.print()
    for text in terminal_plot.heat_map(split.counts):
        terminal.print(text, soft_wrap=True)
    terminal.print()
    for line in terminal_plot.histogram(split.counts.sum(axis=1)):
        terminal.print(line, markup=False, soft_wrap=True)
    classes = split.counts.shape[1]
    examined = f" ({split.participants:,} of them examined)" if split.participants < cohorts.size else ""
    summary = [
        f"a round    {cohorts.size} of {split.clients} clients{examined}, which together hold "
        f"{cohorts.expected * classes:.1f} of {classes} classes on average; EMD to the overall mix {cohorts.emd:.2f} "
        "(0 to 2)",
        f"work       at most {steps.longest} steps per client, median {steps.median:g}, "
        f"{steps.total:,.0f} in a round; {steps.padding:.0%} padding in the stacked engine",
        *(f"warning    {line}" for line in split.warnings),
    ]
    terminal.print()
    for line in summary:
        terminal.print(line, markup=False, soft_wrap=True, style="yellow" if line.startswith("warning") else "")


def _write_csv(split: SplitDescription, path: Path) -> None:
    import pandas as pd

    from unskew.results.atomic_write import write_output

    frame = pd.DataFrame(split.counts, columns=list(split.classes))
    frame.insert(0, "client", list(split.counted))
    write_output(path, frame.to_csv(index=False).encode())
