"""Recorded rows that differ from what was asked for in one or two settings, with the options that show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from unskew.protocol import method_registry
from unskew.reproductions.record_runs import KEY
from unskew.reproductions.recorded_rows import Key

MAX_DIFFERENCES = 2
MAX_LINES = 3
WITHOUT = "without "
OPTIONS = {"preset": "--preset", "rounds": "--rounds", "partition_seed": "--draws", "seed": "--seeds"}
COMPARED = [column for column in KEY if column != "table"]  # equal experiments of other tables are shown anyway


def near_matches(
    lacking: Sequence[Key], lines: Mapping[Key, Mapping[str, str]], required: Mapping[str, str]
) -> list[str]:
    """Sentences such as `3 missing cells are recorded with rounds 30: --rounds 30`, the most useful first.

    lacking: keys of missing cells; lines: recorded rows that are not shown; required: values of
    other columns that the user asked for.
    """
    counts: Counter[tuple[tuple[str, str], ...]] = Counter()
    for key in lacking:
        changes = {change for row, line in lines.items() if (change := _changes(key, row, line, required))}
        fewest = min((len(change) for change in changes), default=0)
        counts.update(change for change in changes if len(change) == fewest)
    # With rounds 30 named, "rounds 30 and seed 0" for the cells of other seeds would say nothing new.
    useful = [(changes, n) for changes, n in counts.most_common() if not any(set(c) < set(changes) for c in counts)]
    return [_sentence(changes, n) for changes, n in useful[:MAX_LINES]]


def _changes(
    key: Key, row: Key, line: Mapping[str, str], required: Mapping[str, str]
) -> tuple[tuple[str, str], ...] | None:
    """(what differs, what to type for it) for each difference; None if there are too many or one has no option."""
    changes = [(f"{column} {line[column]}", f"{column}={line[column]}")
               for column, value in required.items() if line[column] != value]  # fmt: skip
    wanted, recorded = dict(zip(KEY, key)), dict(zip(KEY, row))
    for column in COMPARED:
        if wanted[column] == recorded[column]:
            continue
        option = _option(column, wanted[column], recorded[column])
        if option is None or len(changes) == MAX_DIFFERENCES:
            return None
        name = "draw" if column == "partition_seed" else column
        changes.append((option if column == "setting" else f"{name} {recorded[column]}", option))
    return tuple(changes)


def _option(column: str, wanted: str, recorded: str) -> str | None:
    """What to type for the recorded value; None if no option leads there."""
    if column == "setting":
        words, extra = wanted.split(";"), recorded.split(";")
        more, fewer = ([word for word in a if word not in b] for a, b in ((extra, words), (words, extra)))
        overridable = [word for word in (*more, *fewer) if _is_override(word)]
        if len(overridable) < len(more) + len(fewer):
            return None
        if more and fewer:
            return None
        return " ".join(more) or f"{WITHOUT}{', '.join(fewer)}"
    if column not in OPTIONS or not recorded:
        return None
    return f"{OPTIONS[column]} {recorded}"


def _is_override(word: str) -> bool:
    """Whether a word of a setting is a key of the experiment, and not of a method's part or of the skew."""
    return "." in word.partition("=")[0] and word.partition(".")[0] not in method_registry.PARTS


def _sentence(changes: Iterable[tuple[str, str]], count: int) -> str:
    """With what the rows are recorded, and the options for it; overrides to leave out need no option."""
    cells = f"{count} missing cell{'s are' if count > 1 else ' is'} recorded"
    left_out = [option for _, option in changes if option.startswith(WITHOUT)]
    added = [(name, option) for name, option in changes if not option.startswith(WITHOUT)]
    words = [f"with {' and '.join(name for name, _ in added)}"] * bool(added) + left_out
    options = " ".join(option for _, option in added)
    return f"{cells} {', '.join(words)}{f': {options}' if options else ''}"
