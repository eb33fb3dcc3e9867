"""Arguments and options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

RUN_FAILED = 2  # exit code when at least one run of a grid failed
STOPPED = "stopped; run the same command again to continue every run after its last complete round"


def _import_files(files: list[Path] | None) -> list[Path] | None:
    """Import before the command reads a recipe: what the files register must have a name then."""
    if files:
        from unskew.config.user_code import import_files

        import_files(files)
    return files


Imports = Annotated[
    list[Path] | None,
    typer.Option(
        "--import", callback=_import_files, metavar="FILE", help="Python file with your own methods, models, data"
    ),
]


def _complete_recipe(incomplete: str) -> list[str]:
    """Names of the built-in recipes, for the shell's completion."""
    names = (file.name for file in resources.files("unskew.recipes").iterdir() if file.name.endswith(".yaml"))
    return sorted(name.removesuffix(".yaml") for name in names if name.startswith(incomplete))


Recipe = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="YAML file or name of a built-in recipe", autocompletion=_complete_recipe),
]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="change keys of the recipe")]
Seeds = Annotated[str | None, typer.Option("--seeds", metavar="SEEDS", help="such as 0,1,2 or 0-4")]
Jobs = Annotated[int | None, typer.Option(min=1, metavar="N", help="parallel runs (default: one per core, 6 on a GPU)")]
DATA_DIR_HELP = "dataset folder (default: $UNSKEW_DATA, else ~/.cache/unskew)"
DataDir = Annotated[Path | None, typer.Option(metavar="DIR", help=DATA_DIR_HELP)]
Json = Annotated[bool, typer.Option("--json", help="print one line of JSON instead of tables")]
