"""Which columns there is data for: the paper's own, or stand-ins on other data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from unskew.reproductions.availability import why_unavailable
from unskew.reproductions.missing_cells import MissingCells
from unskew.reproductions.paper_names import stands_for


@dataclass(frozen=True)
class AvailableColumns:
    """Labels of the available columns, why each other one is unavailable, and the stand-ins for some of those."""

    available: tuple[str, ...]
    absent: dict[str, str]
    stand_ins: dict[str, str]  # the paper's column -> its stand-in

    @property
    def missing(self) -> list[MissingCells]:
        """One entry for all columns that are absent for the same reason."""
        lines = []
        for why in dict.fromkeys(self.absent.values()):
            labels = [label for label, each in self.absent.items() if each == why]
            used = [self.stand_ins[label] for label in labels if label in self.stand_ins]
            instead = f"; used instead, without the paper's numbers: {', '.join(used)}" if used else ""
            lines.append(MissingCells(f"{why}{instead}", tuple(labels)))
        return lines


def columns_on_disk(data: Mapping[str, str], chosen: bool, data_dir: Path | None) -> AvailableColumns:
    """The columns whose data are in the dataset folder. data: label of a column -> its dataset.

    chosen: whether the user chose the columns; if not, stand-ins are used only for data that are not in the folder.
    """
    why = {label: why_unavailable(name, data_dir) for label, name in data.items()}
    stand_ins = {} if chosen else _stand_ins(data, {label for label in data if not why[label]})
    kept = [label for label in data if chosen or not _is_stand_in(label, data) or label in stand_ins.values()]
    absent = {label: why[label] for label in kept if why[label]}
    return AvailableColumns(tuple(label for label in kept if label not in absent), absent, stand_ins)


def columns_recorded(data: Mapping[str, str], chosen: bool, rows: Iterable[str]) -> AvailableColumns:
    """The columns whose dataset has recorded rows; rows: the datasets that have any.

    Only columns with a stand-in are absent here; the caller lists whatever else is not recorded.
    """
    stand_ins = {} if chosen else _stand_ins(data, {label for label in data if data[label] in set(rows)})
    kept = [label for label in data if chosen or not _is_stand_in(label, data) or label in stand_ins.values()]
    absent = {label: f"{data[label]} is not recorded" for label in stand_ins}
    return AvailableColumns(tuple(label for label in kept if label not in absent), absent, stand_ins)


def _is_stand_in(label: str, data: Mapping[str, str]) -> bool:
    original = stands_for(label)
    return bool(original) and original in data


def _stand_ins(data: Mapping[str, str], available: set[str]) -> dict[str, str]:
    """Unavailable columns with an available stand-in, and that stand-in."""
    stand_ins = {stands_for(label): label for label in data if _is_stand_in(label, data) and label in available}
    return {original: label for original, label in stand_ins.items() if original not in available}
