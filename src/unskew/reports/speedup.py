"""How much sooner a method reaches FedAvg's best accuracy: relative to FedAvg, and as FedLMD prints it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class SpeedUp:
    """A factor, and whether the target was reached."""

    factor: float
    reached: bool


def speed_up(curve: pd.DataFrame, baseline: pd.DataFrame) -> SpeedUp:
    """First round in which the baseline reaches its own best / first round in which the method reaches it.

    So equal curves give 1. NaN if the method never reaches it. Both frames have columns round and value.

    >>> fedavg = pd.DataFrame({"round": [1, 2, 3, 4], "value": [10.0, 30.0, 40.0, 35.0]})
    >>> moon = pd.DataFrame({"round": [1, 2, 3, 4], "value": [20.0, 41.0, 39.0, 50.0]})
    >>> speed_up(moon, fedavg).factor, speed_up(fedavg, fedavg).factor
    (1.5, 1.0)
    """
    target = float(baseline["value"].max())
    first, own = _first_round_at(curve, target), _first_round_at(baseline, target)
    return SpeedUp(math.nan, False) if first is None or own is None else SpeedUp(own / first, True)


def paper_speed_up(curve: pd.DataFrame, baseline: pd.DataFrame, rounds: int) -> SpeedUp:
    """Number of rounds / first round whose accuracy is at least the baseline's best, as FedLMD prints it.

    The numerator is the length of the run, and a method that never reaches the target has 1: FedLMD's printed factors
    are 200 / r.

    >>> fedavg = pd.DataFrame({"round": [1, 2, 3, 4], "value": [10.0, 30.0, 40.0, 35.0]})
    >>> moon = pd.DataFrame({"round": [1, 2, 3, 4], "value": [20.0, 41.0, 39.0, 50.0]})
    >>> paper_speed_up(moon, fedavg, 4)
    SpeedUp(factor=2.0, reached=True)
    """
    first = _first_round_at(curve, float(baseline["value"].max()))
    return SpeedUp(1.0, False) if first is None else SpeedUp(rounds / first, True)


def _first_round_at(curve: pd.DataFrame, target: float) -> int | None:
    reached = curve[curve["value"] >= target]["round"]
    return None if reached.empty else int(reached.min())
