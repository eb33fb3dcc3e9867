"""The docstring of a method's file, read as sections: one line, equations, paper, notes, departures.

The shape is a convention that `tests/commands/test_method_files.py` holds every file to:

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
    """One method file in its own words."""

    module: str  # short name of the file
    title: str
    authors: str
    year: str
    line: str
    equations: tuple[str, ...]  # each as written, its continuation lines included
    paper: str
    notes: str
    differs: str  # empty: nothing

    @property
    def cited(self) -> str:
        """Authors and year, as in Li et al. 2020."""
        return f"{self.authors} {self.year}".strip()


def read(part: type[Part]) -> MethodDocstring:
    """The sections of the file that defines a part; what a file does not have is empty."""
    text = inspect.getdoc(sys.modules[part.__module__]) or ""
    head, _, body = text.partition("\n\n")
    first = _FIRST.fullmatch(" ".join(head.split()))
    found = (
        first.groupdict() if first else {"title": part.name, "authors": "", "year": "", "line": " ".join(head.split())}
    )
    told, _, differs = body.partition("Differs:")
    prose = "\n".join(line for line in told.splitlines() if not line.startswith(" ")).strip()
    paper = re.search(r"^Paper: (.*?\.)$", prose, re.DOTALL | re.MULTILINE)
    notes = prose.replace(paper.group(0), "") if paper else prose
    return MethodDocstring(
        part.__module__.rpartition(".")[2],
        found["title"],
        found["authors"],
        found["year"],
        _sentence(found["line"]),
        _equations(told),
        " ".join(paper.group(1).split()) if paper else "",
        " ".join(notes.split()),
        "" if differs.strip().startswith("nothing.") else " ".join(differs.split()),
    )


def of_parts(parts: list[type[Part]]) -> list[MethodDocstring]:
    """The files behind some parts, each once, with the equations that these parts compute."""
    modules = dict.fromkeys(part.__module__ for part in parts)
    return [_in_force(module, [part for part in parts if part.__module__ == module]) for module in modules]


def numbers_on_code(module: str) -> set[str]:
    """The equation numbers in a file's comments."""
    return _commented(inspect.getsource(sys.modules[module]))


def number(equation: str) -> str:
    """The number of an equation as it is written, such as 1."""
    match = _NUMBER.match(equation.lstrip())
    return match.group(1) if match else ""


def _in_force(module: str, used: list[type[Part]]) -> MethodDocstring:
    """Without the equations of parts that something else replaced, such as FedAvg's mean under server momentum."""
    source = read(used[0])
    classes = [each for each in vars(sys.modules[module]).values() if isinstance(each, type) and issubclass(each, Part)]
    here = [each for each in classes if each.__module__ == module]
    kept = set().union(*(_commented(inspect.getsource(each)) for each in used))
    lost = set().union(*(_commented(inspect.getsource(each)) for each in here if each not in used)) - kept
    return replace(source, equations=tuple(line for line in source.equations if number(line) not in lost))


def _commented(code: str) -> set[str]:
    return {found for line in code.splitlines() for found in _NUMBER.findall(line.partition("#")[2])}


def _equations(told: str) -> tuple[str, ...]:
    blocks: list[str] = []
    for line in told.splitlines():
        if _NUMBER.match(line.lstrip()) and line.startswith(" "):
            blocks.append(line.rstrip())
        elif blocks and line.startswith(" ") and line.strip():
            blocks[-1] += f"\n{line.rstrip()}"
    return tuple(blocks)


def _sentence(line: str) -> str:
    return " ".join(line.split()).rstrip(".")
