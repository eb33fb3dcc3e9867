"""How far what was played is what the paper played."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unskew.compare.grid import Cell
from unskew.config.experiment import Experiment
from unskew.reproduce.paper_names import skew

# Where and how numbers are computed, kept and repeated: other values are no other experiment.
NEUTRAL = ("device", "precision", "engine", "partition.seed", "record", "checkpoint", "track")


def replaced(played: Experiment, paper: Experiment) -> list[str]:
    """Data, model or skew that stand in for the paper's: none of its numbers is about them.

    >>> replaced(Experiment(data="digits", rounds=2), Experiment(data="mnist"))
    ['digits in place of mnist']
    """
    pairs = [(each.data.name, each.model.name, skew(each.partition)) for each in (played, paper)]
    return [f"{mine} in place of {theirs}" for mine, theirs in zip(*pairs) if mine != theirs]


def changed(typed: Iterable[tuple[str, Any]], plain: dict[str, Any]) -> tuple[str, ...]:
    """What a person typed and the recipe has otherwise; plain: the recipe's settings by dotted keys.

    >>> changed([("rounds", 2), ("device", "cpu"), ("local.lr", 0.1)], {"rounds": 200, "local.lr": 0.1})
    ('rounds=2 instead of 200',)
    """
    words = []
    for key, value in typed:
        if key == "device" or plain.get(key) == value:
            continue
        before = plain.get(key, plain.get(f"{key}.name"))
        words.append(f"{key}={value}" + (f" instead of {before}" if before is not None else ""))
    return tuple(words)


def how_played(cells: Sequence[Cell], papers: Mapping[str, Experiment], words: Sequence[str]) -> str:
    """Preset, draws of the split and what is not as in the paper, for below a figure. papers: by setting."""
    presets = dict.fromkeys(cell.experiment.preset for cell in cells)
    draws = dict.fromkeys(str(draw) for cell in cells if (draw := cell.experiment.partition.seed) is not None)
    said = f"preset {', '.join(presets)}" + (f", draw {', '.join(draws)} of the split" if draws else "")
    others = dict.fromkeys(word for cell in cells for word in replaced(cell.experiment, papers[cell.setting]))
    changes = [*words, *(word for word in others if not words)]
    return f"{said[0].upper()}{said[1:]}." + (f" Not as in the paper: {', '.join(changes)}." if changes else "")


def is_the_papers(words: Iterable[str]) -> bool:
    """Whether the changes leave the experiment as it is."""
    keys = [word.partition("=")[0] for word in words]
    return all(key in NEUTRAL or key.partition(".")[0] in NEUTRAL for key in keys)
