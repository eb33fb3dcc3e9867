"""Which columns the data allow: the paper's own, or those of other data that stand in for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from unskew.reproduce.availability import how_to_get
from unskew.reproduce.paper_names import columns, stands_for


@dataclass(frozen=True)
class AvailableColumns:
    """Labels of columns that can be had, and why each other one cannot; what is had in place of some of those."""

    here: tuple[str, ...]
    absent: dict[str, str]
    places: dict[str, str]  # column of the paper's -> its stand-in

    @property
    def missing(self) -> list[str]:
        """In words, a line for the columns that are absent for one reason."""
        said = []
        for why in dict.fromkeys(self.absent.values()):
            labels = [label for label, each in self.absent.items() if each == why]
            others = [self.places[label] for label in labels if label in self.places]
            place = f"; in its place, beside no number of the paper: {', '.join(others)}" if others else ""
            said.append(f"{columns(labels)}: {why}{place}")
        return said


def played(data: Mapping[str, str], named: bool, data_dir: Path | None) -> AvailableColumns:
    """Of the data folder. data: label of a column -> its dataset; named: a person chose the columns.

    A stand-in that nobody named is played where the data that it stands in for are not here.
    """
    why = {label: how_to_get(name, data_dir) for label, name in data.items()}
    places = {} if named else _places(data, {label for label in data if not why[label]})
    kept = [label for label in data if named or not _is_stand_in(label, data) or label in places.values()]
    absent = {label: why[label] for label in kept if why[label]}
    return AvailableColumns(tuple(label for label in kept if label not in absent), absent, places)


def recorded(data: Mapping[str, str], named: bool, rows: Iterable[str]) -> AvailableColumns:
    """Of recorded rows, by the datasets that have any. What else is not recorded, the rows will tell."""
    places = {} if named else _places(data, {label for label in data if data[label] in set(rows)})
    kept = [label for label in data if named or not _is_stand_in(label, data) or label in places.values()]
    absent = {label: f"{data[label]} is not recorded" for label in places}
    return AvailableColumns(tuple(label for label in kept if label not in absent), absent, places)


def _is_stand_in(label: str, data: Mapping[str, str]) -> bool:
    of = stands_for(label)
    return bool(of) and of in data


def _places(data: Mapping[str, str], there: set[str]) -> dict[str, str]:
    """Columns that are not there and whose stand-in is."""
    stand_ins = {stands_for(label): label for label in data if _is_stand_in(label, data) and label in there}
    return {of: label for of, label in stand_ins.items() if of not in there}
