"""Every table and figure of the five papers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from unskew.base.errors import UserError, nearest
from unskew.reproduce.paper_names import text

NOTHING_TO_RUN = ("drawing", "description")


@dataclass(frozen=True)
class Target:
    """A table or figure: what it shows in our words, and the file of its printed numbers."""

    paper: str
    key: str  # table3-lda, figure2
    kind: str
    title: str
    own: str  # the method that the paper proposes there
    numbers: str = ""

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.key}"

    @property
    def slug(self) -> str:
        """For files and folders."""
        return f"{self.paper}-{self.key}"

    @property
    def recipe(self) -> str | None:
        """The recipe that plays it, if there is one."""
        return self.slug if (resources.files("unskew.recipes") / f"{self.slug}.yaml").is_file() else None

    @property
    def is_figure(self) -> bool:
        return self.key.startswith("figure")


@cache
def papers() -> dict[str, str]:
    """Name of a paper -> its title."""
    return {name: entry["title"] for name, entry in yaml.safe_load(text("catalogue.yaml")).items()}


@cache
def targets() -> dict[str, Target]:
    """By name, in the papers' order."""
    found = [
        Target(paper, key, **{"own": entry["own"]} | about)
        for paper, entry in yaml.safe_load(text("catalogue.yaml")).items()
        for key, about in entry["targets"].items()
    ]
    return {target.name: target for target in found}


def find(name: str) -> Target:
    """A target that can be played as far as its recipe goes, or a UserError."""
    known = targets()
    if name not in known:
        some = [target.name for target in known.values() if target.recipe]
        raise UserError(
            f"expected a table or figure such as {', '.join(some[:3])}, found {name!r}{nearest(name, known)}; "
            "`unskew reproduce` lists all of them"
        )
    target = known[name]
    if target.recipe is None:
        why = f"it is a {target.kind}" if target.kind in NOTHING_TO_RUN else "it has no recipe yet"
        raise UserError(f"{name}: there is nothing to run, {why}; `unskew reproduce` lists what can be run")
    return target
