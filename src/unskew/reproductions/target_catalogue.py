"""The tables and figures of the five papers as `Target`s, read from `papers/catalogue.yaml`, and lookup by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from unskew.base.errors import UserError, did_you_mean
from unskew.reproductions.paper_names import read_text

NOT_RUNNABLE = ("drawing", "description")


@dataclass(frozen=True)
class Target:
    """A table or figure: its title in our words, and the file with its printed numbers."""

    paper: str
    key: str  # table3-lda, figure2
    form: str  # table, leak, cost, text, figure, pictures, drawing or description
    title: str
    proposed: str  # the method that the paper proposes in it
    numbers: str = ""

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.key}"

    @property
    def slug(self) -> str:
        """The name for files and folders."""
        return f"{self.paper}-{self.key}"

    @property
    def recipe(self) -> str | None:
        """The name of its recipe, if it has one."""
        return self.slug if (resources.files("unskew.recipes") / f"{self.slug}.yaml").is_file() else None

    @property
    def is_figure(self) -> bool:
        return self.key.startswith("figure")


@cache
def papers() -> dict[str, str]:
    """Name of a paper -> its title."""
    return {name: entry["title"] for name, entry in yaml.safe_load(read_text("catalogue.yaml")).items()}


@cache
def targets() -> dict[str, Target]:
    """Targets by name, in the papers' order."""
    catalogue = [
        Target(paper, key, **{"proposed": entry["proposed"]} | about)
        for paper, entry in yaml.safe_load(read_text("catalogue.yaml")).items()
        for key, about in entry["targets"].items()
    ]
    return {target.name: target for target in catalogue}


def find(name: str) -> Target:
    """The target with this name; a UserError if there is none or it has no recipe."""
    known = targets()
    if name not in known:
        examples = [target.name for target in known.values() if target.recipe]
        hint = did_you_mean(name, known) or "."
        raise UserError(
            f"found {name!r}{hint} Expected a table or figure such as {', '.join(examples[:3])}; `unskew reproduce` "
            "lists all of them"
        )
    target = known[name]
    if target.recipe is None:
        reason = f"it is a {target.form}" if target.form in NOT_RUNNABLE else "it has no recipe yet"
        raise UserError(f"{name}: there is nothing to run: {reason}; `unskew reproduce` lists what can be run")
    return target
