"""Parse the docstring of a method's file into sections: summary, equations, paper, notes, departures.

`tests/describe/test_method_files.py` checks that every file follows this shape:

    FedProx (Li et al. 2020): stay near the received model.

        (1)  L(w) = ...

    Paper: authors, "title", venue and year.
    Whatever a reader should know.
    Differs: from the paper, or "nothing".
"""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass, replace

from unskew.protocol.part import Part

_FIRST = re.compile(
    r"(?P<title>[^(:]+?) \((?P<authors>[^)]*?),? (?P<year>\d{4})\)(?P<rest>[^:]*): (?P<line>.*)", re.DOTALL
)
_NUMBER = re.compile(r"\((\d+)\)")


@dataclass(frozen=True)
class MethodDocstring:
    """The parsed docstring of one method file."""

    module: str  # short name of the file
    title: str
    authors: str
    year: str
    line: str
    equations: tuple[str, ...]  # each as written, its continuation lines included
    paper: str
    notes: str
    differs: str  # empty if nothing differs

    @property
    def cited(self) -> str:
        """Authors and year, as in Li et al. 2020."""
        return f"{self.authors} {self.year}".strip()


def read(part: type[Part]) -> MethodDocstring:
    """The docstring of the file that defines a part; sections that it does not have are empty."""
    text = inspect.getdoc(sys.modules[part.__module__]) or ""
    head, _, body = text.partition("\n\n")
    first = _FIRST.fullmatch(" ".join(head.split()))
    fields = (
        first.groupdict() if first else {"title": part.name, "authors": "", "year": "", "line": " ".join(head.split())}
    )
    described, _, differs = body.partition("Differs:")
    prose = "\n".join(line for line in described.splitlines() if not line.startswith(" ")).strip()
    paper = re.search(r"^Paper: (.*?\.)$", prose, re.DOTALL | re.MULTILINE)
    notes = prose.replace(paper.group(0), "") if paper else prose
    return MethodDocstring(
        part.__module__.rpartition(".")[2],
        fields["title"],
        fields["authors"],
        fields["year"],
        _sentence(fields["line"]),
        _equations(described),
        " ".join(paper.group(1).split()) if paper else "",
        " ".join(notes.split()),
        "" if differs.strip().startswith("nothing.") else " ".join(differs.split()),
    )


def read_parts(parts: list[type[Part]]) -> list[MethodDocstring]:
    """The docstrings of the files that define the parts, each once, with the equations that these parts compute."""
    modules = dict.fromkeys(part.__module__ for part in parts)
    return [
        _without_replaced_equations(module, [part for part in parts if part.__module__ == module]) for module in modules
    ]


def equation_numbers_in_code(module: str) -> set[str]:
    """The equation numbers in the comments of a module."""
    return _numbers_in_comments(inspect.getsource(sys.modules[module]))


def equation_number(equation: str) -> str:
    """The number of an equation as written, such as 1; empty if it has none."""
    match = _NUMBER.match(equation.lstrip())
    return match.group(1) if match else ""


def _without_replaced_equations(module: str, used: list[type[Part]]) -> MethodDocstring:
    """Drop the equations of parts that the method replaces, such as FedAvg's mean under server momentum."""
    source = read(used[0])
    classes = [cls for cls in vars(sys.modules[module]).values() if isinstance(cls, type) and issubclass(cls, Part)]
    own = [cls for cls in classes if cls.__module__ == module]
    inherited = {base for cls in used for base in cls.__mro__ if base in own}
    used_numbers = set().union(*(_numbers_in_comments(inspect.getsource(cls)) for cls in inherited))
    others = [cls for cls in own if cls not in inherited]
    replaced_numbers = set().union(*(_numbers_in_comments(inspect.getsource(cls)) for cls in others)) - used_numbers
    return replace(
        source, equations=tuple(line for line in source.equations if equation_number(line) not in replaced_numbers)
    )


def _numbers_in_comments(code: str) -> set[str]:
    return {number for line in code.splitlines() for number in _NUMBER.findall(line.partition("#")[2])}


def _equations(text: str) -> tuple[str, ...]:
    blocks: list[str] = []
    for line in text.splitlines():
        if _NUMBER.match(line.lstrip()) and line.startswith(" "):
            blocks.append(line.rstrip())
        elif blocks and line.startswith(" ") and line.strip():
            blocks[-1] += f"\n{line.rstrip()}"
    return tuple(blocks)


def _sentence(line: str) -> str:
    return " ".join(line.split()).rstrip(".")
