"""Rounds to be timed, and the file that times are kept in."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from workloads import Workload

from unskew.prepare import Prepared, prepare


class Unskew:
    """Rounds of a prepared federation, without evaluation."""

    def __init__(self, ready: Prepared) -> None:
        self.federation = ready.federation
        self.snap = self.federation.start()

    def __call__(self) -> None:
        self.snap, _ = self.federation.play(self.snap)
        self.federation.store.commit()


def ready(load: Workload, engine: str, device: str, precision: str) -> Prepared:
    return prepare(load.experiment(engine, device, precision, 1000), data=load.data(), model=load.net())


def keep(path: Path, fresh: pd.DataFrame, key: list[str]) -> None:
    """Add rows; those with the same key are replaced."""
    if path.exists():
        old = pd.read_csv(path)
        mine = set(fresh[key].astype(str).agg("|".join, axis=1))
        fresh = pd.concat([old[~old[key].astype(str).agg("|".join, axis=1).isin(mine)], fresh])
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh.to_csv(path, index=False)
