"""FedLMD's speed-up: how much sooner a method reaches FedAvg's best accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class SpeedUp:
    """A factor; 1 if the target was never reached, as FedLMD prints it."""

    factor: float
    reached: bool


def speed_up(curve: pd.DataFrame, baseline: pd.DataFrame, rounds: int) -> SpeedUp:
    """rounds / first round whose accuracy is at least the baseline's best.

    The numerator is the length of the run, not the baseline's best round: FedLMD's printed factors are 200 / r. Both
    frames have columns round and value.

    >>> fedavg = pd.DataFrame({"round": [1, 2, 3, 4], "value": [10.0, 30.0, 40.0, 35.0]})
    >>> moon = pd.DataFrame({"round": [1, 2, 3, 4], "value": [20.0, 41.0, 39.0, 50.0]})
    >>> speed_up(moon, fedavg, 4)
    SpeedUp(factor=2.0, reached=True)
    """
    reached = curve[curve["value"] >= baseline["value"].max()]["round"]
    if reached.empty:
        return SpeedUp(1.0, False)
    return SpeedUp(rounds / int(reached.min()), True)
