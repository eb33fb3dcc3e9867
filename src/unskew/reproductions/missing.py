"""What a reproduced table or figure lacks, and why: columns, methods, single seeds and draws of the split."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from unskew.comparisons.grid import Cell
from unskew.reproductions.missing_cells import MissingCells
from unskew.reproductions.target_plan import TargetPlan

Repetition = tuple[int | None, int]  # draw of the split and seed
WHY = "not recorded"


def list_missing(
    plan: TargetPlan, requested: Collection[str], recorded: Collection[str]
) -> tuple[list[MissingCells], list[str]]:
    """What is missing, and the columns of which nothing is recorded.

    requested, recorded: names of cells. A repetition counts as missing if it was requested, or if another method of
    its column has it.
    """
    by_column: dict[str, list[Cell]] = {}
    for cell in plan.grid.cells:
        by_column.setdefault(plan.column_of(cell), []).append(cell)
    absent = [column for column, cells in by_column.items() if not any(cell.name in recorded for cell in cells)]
    lines = [MissingCells(WHY, tuple(absent))] if absent else []
    for column, cells in by_column.items():
        lines += [] if column in absent else _missing_in_column(column, cells, requested, recorded)
    return lines, absent


def _missing_in_column(
    column: str, cells: Sequence[Cell], requested: Collection[str], recorded: Collection[str]
) -> list[MissingCells]:
    """An entry for the methods with no repetition, and one per group of methods that lack the same repetitions."""
    known = {repetition(cell) for cell in cells if cell.name in recorded}
    none: list[str] = []
    some: dict[tuple[Repetition, ...], list[str]] = {}
    for method in dict.fromkeys(cell.label for cell in cells):
        own = [cell for cell in cells if cell.label == method]
        absent = [c for c in own if c.name not in recorded and (c.name in requested or repetition(c) in known)]
        if not any(cell.name in recorded for cell in own):
            none.append(method)
        elif absent:
            some.setdefault(tuple(map(repetition, absent)), []).append(method)
    lines = [MissingCells(WHY, (column,), tuple(none))] if none else []
    for repetitions, names in some.items():
        lines.append(MissingCells(f"{WHY}: {format_repetitions(repetitions)}", (column,), tuple(names)))
    return lines


def repetition(cell: Cell) -> Repetition:
    return cell.experiment.partition.seed, cell.seed


def format_repetitions(repetitions: Sequence[Repetition]) -> str:
    """Draws that lack the same seeds are put together.

    >>> format_repetitions([(1, 0), (2, 0), (19940817, 1), (19940817, 2)]), format_repetitions([(None, 3)])
    ('draws 1, 2 with seed 0; draw 19940817 with seeds 1, 2', 'seed 3')
    """
    by_draw: dict[int | None, list[int]] = {}
    for draw, seed in repetitions:
        by_draw.setdefault(draw, []).append(seed)
    by_seeds: dict[tuple[int, ...], list[int | None]] = {}
    for draw, seeds in by_draw.items():
        by_seeds.setdefault(tuple(seeds), []).append(draw)
    words = []
    for seeds_of_draws, draws in by_seeds.items():
        named = [str(draw) for draw in draws if draw is not None]
        before = f"{_plural('draw', named)} with " if named else ""
        words.append(before + _plural("seed", [str(seed) for seed in seeds_of_draws]))
    return "; ".join(words)


def _plural(word: str, values: Sequence[str]) -> str:
    return f"{word}{'s' * (len(values) > 1)} {', '.join(values)}"
