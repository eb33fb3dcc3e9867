"""How a run deviates from the paper's experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unskew.comparisons.grid import Cell
from unskew.config.experiment import Experiment
from unskew.reproductions.paper_names import skew_label

# Keys for where and how a run computes, stores and repeats; changing them does not make it another experiment.
NEUTRAL = ("device", "precision", "engine", "partition.seed", "record", "checkpoint", "track")


def substitutions(experiment: Experiment, paper: Experiment) -> list[str]:
    """Data, model or skew that replace the paper's; the paper's numbers do not apply to them.

    >>> substitutions(Experiment(data="digits", rounds=2), Experiment(data="mnist"))
    ['digits in place of mnist']
    """
    pairs = [(each.data.name, each.model.name, skew_label(each.partition)) for each in (experiment, paper)]
    return [f"{used} in place of {papers}" for used, papers in zip(*pairs) if used != papers]


def changes_from_recipe(overrides: Iterable[tuple[str, Any]], recipe: dict[str, Any]) -> tuple[str, ...]:
    """The user's overrides that differ from the recipe's settings, which are given by dotted key.

    >>> changes_from_recipe([("rounds", 2), ("device", "cpu"), ("local.lr", 0.1)], {"rounds": 200, "local.lr": 0.1})
    ('rounds=2 instead of 200',)
    """
    words = []
    for key, value in overrides:
        if key == "device" or recipe.get(key) == value:
            continue
        before = recipe.get(key, recipe.get(f"{key}.name"))
        words.append(f"{key}={value}" + (f" instead of {before}" if before is not None else ""))
    return tuple(words)


def run_note(
    cells: Sequence[Cell],
    papers: Mapping[str, Experiment],
    changes: Sequence[str],
    preset: str,
    preset_changes: Sequence[str] = (),
) -> str:
    """A sentence for a figure's caption: preset, draws of the split, and deviations from the paper.

    papers: the paper's experiment by setting.
    """
    draws = dict.fromkeys(str(draw) for cell in cells if (draw := cell.experiment.partition.seed) is not None)
    note = f"preset {preset}" + (f" ({', '.join(preset_changes)})" if preset_changes else "")
    note += f", draw {', '.join(draws)} of the split" if draws else ""
    replaced = dict.fromkeys(words for cell in cells for words in substitutions(cell.experiment, papers[cell.setting]))
    deviations = changes or list(replaced)
    note = f"{note[0].upper()}{note[1:]}."
    return f"{note} Differs from the paper: {', '.join(deviations)}." if deviations else note


def keeps_experiment(changes: Iterable[str]) -> bool:
    """Whether the changes (`key=value ...`) concern neutral keys only."""
    keys = [change.partition("=")[0] for change in changes]
    return all(key in NEUTRAL or key.partition(".")[0] in NEUTRAL for key in keys)
