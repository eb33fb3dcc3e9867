"""What of a table or figure is not recorded: columns, methods, and single seeds and draws of the split."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from unskew.compare.grid import Cell
from unskew.reproduce.paper_names import columns
from unskew.reproduce.target_plan import TargetPlan

Repetition = tuple[int | None, int]  # draw of the split and seed


def lacks(plan: TargetPlan, asked: Collection[str], there: Collection[str]) -> tuple[list[str], list[str]]:
    """In words, and the columns of which nothing is recorded. asked, there: names of cells.

    A repetition counts as lacking where it was asked for, or where another method of its column has it.
    """
    by_column: dict[str, list[Cell]] = {}
    for cell in plan.grid.cells:
        by_column.setdefault(plan.column_of(cell), []).append(cell)
    absent = [column for column, cells in by_column.items() if not any(cell.name in there for cell in cells)]
    said = [f"{columns(absent)}: not recorded"] if absent else []
    for column, cells in by_column.items():
        said += [] if column in absent else _of_column(column, cells, asked, there)
    return said, absent


def _of_column(column: str, cells: Sequence[Cell], asked: Collection[str], there: Collection[str]) -> list[str]:
    """A line for the methods that are not there at all, and one for those that lack the same repetitions."""
    known = {repetition(cell) for cell in cells if cell.name in there}
    none: list[str] = []
    some: dict[tuple[Repetition, ...], list[str]] = {}
    for method in dict.fromkeys(cell.label for cell in cells):
        mine = [cell for cell in cells if cell.label == method]
        gone = [c for c in mine if c.name not in there and (c.name in asked or repetition(c) in known)]
        if not any(cell.name in there for cell in mine):
            none.append(method)
        elif gone:
            some.setdefault(tuple(map(repetition, gone)), []).append(method)
    said = [f"{columns([column])}, {', '.join(none)}: not recorded"] if none else []
    return said + [f"{columns([column])}, {', '.join(names)}: not recorded: {spell(r)}" for r, names in some.items()]


def repetition(cell: Cell) -> Repetition:
    return cell.experiment.partition.seed, cell.seed


def spell(repetitions: Sequence[Repetition]) -> str:
    """Draws that lack the same seeds go together.

    >>> spell([(1, 0), (2, 0), (19940817, 1), (19940817, 2)]), spell([(None, 3)])
    ('draws 1, 2 with seed 0; draw 19940817 with seeds 1, 2', 'seed 3')
    """
    by_draw: dict[int | None, list[int]] = {}
    for draw, seed in repetitions:
        by_draw.setdefault(draw, []).append(seed)
    by_seeds: dict[tuple[int, ...], list[int | None]] = {}
    for draw, seeds in by_draw.items():
        by_seeds.setdefault(tuple(seeds), []).append(draw)
    words = []
    for found, draws in by_seeds.items():
        named = [str(draw) for draw in draws if draw is not None]
        before = f"{_many('draw', named)} with " if named else ""
        words.append(before + _many("seed", [str(seed) for seed in found]))
    return "; ".join(words)


def _many(word: str, values: Sequence[str]) -> str:
    return f"{word}{'s' * (len(values) > 1)} {', '.join(values)}"
