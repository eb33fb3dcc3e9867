"""FedLMD's speed-up: how much sooner a method is where FedAvg gets at best."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class SpeedUp:
    """A factor; 1 where the target was never reached, as FedLMD prints it."""

    factor: float
    reached: bool


def speed_up(curve: pd.DataFrame, reference: pd.DataFrame, rounds: int) -> SpeedUp:
    """rounds / first round whose accuracy is at least the reference's best.

    The numerator is the length of the run, not the round in which the reference arrived: FedLMD's printed factors are
    200 / r. Both frames have columns round and value.

    >>> fedavg = pd.DataFrame({"round": [1, 2, 3, 4], "value": [10.0, 30.0, 40.0, 35.0]})
    >>> ours = pd.DataFrame({"round": [1, 2, 3, 4], "value": [20.0, 41.0, 39.0, 50.0]})
    >>> speed_up(ours, fedavg, 4)
    SpeedUp(factor=2.0, reached=True)
    """
    there = curve[curve["value"] >= reference["value"].max()]["round"]
    if there.empty:
        return SpeedUp(1.0, False)
    return SpeedUp(rounds / int(there.min()), True)
