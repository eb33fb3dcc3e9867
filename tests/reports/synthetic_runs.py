"""Synthetic runs in memory with given accuracies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import unskew as us
from unskew.protocol.method_registry import label
from unskew.results.load_run import LoadedRun
from unskew.results.run_tables import METRICS, summarise

CLASSES = 4


def make_run(method: Any, seed: int, accuracy: Sequence[float], **more: Any) -> LoadedRun:
    """A finished run of one method. more: clients, seconds, up (bytes), classes (names), settings of the experiment."""
    clients, seconds, up = (more.pop(key, default) for key, default in (("clients", 5), ("seconds", 1.0), ("up", 1000)))
    classes = more.pop("classes", [f"class {c}" for c in range(CLASSES)])
    environment = more.pop("environment", {"device": "a box", "engine": "loop", "workers": 1, "padding_share": 0.0})
    partition = more.pop("partition", {"name": "iid", "clients": clients})
    rounds = len(accuracy)
    config = us.Experiment(method=method, seed=seed, rounds=rounds, partition=partition, **more)
    metrics = _metrics(label(config.method), seed, accuracy, clients, len(classes))
    summary = summarise("made", config.label, metrics, up, up, seconds * rounds)
    about = {
        "header": [f"data       {config.data.name}: made up", f"differs    {config.label}: made up"],
        "classes": list(classes),
        "shape": [1, 8, 8],
    }
    run = LoadedRun(Path(f"made/{id(summary)}"), config, summary, about, environment)
    tables = {"metrics": metrics, "ledger": _ledger(rounds, clients, up), "times": _times(rounds, seconds)}
    tables["clients"] = pd.DataFrame(
        [(k, c, 3 if c == k % len(classes) else 1) for k in range(clients) for c in range(len(classes))],
        columns=["client", "class", "rows"],
    )
    run.__dict__.update(tables)  # fill the cached properties
    return run


def _metrics(method: str, seed: int, accuracy: Sequence[float], clients: int, classes: int) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for round, value in enumerate(accuracy, start=1):
        server = {"accuracy": value, "loss": 1 / round}
        server |= {f"accuracy/{c}": value if c else 0.0 for c in range(classes)}
        server |= {f"predicted/{c}": 30.0 if c == 1 else 10.0 for c in range(classes)}
        rows += [("made", method, seed, round, "server", "test", name, value) for name, value in server.items()]
        rows += [
            ("made", method, seed, round, f"client-{k}", "train", "loss/ce", 1 / round + k) for k in range(clients)
        ]
    return pd.DataFrame(rows, columns=list(METRICS))


def _ledger(rounds: int, clients: int, up: int) -> pd.DataFrame:
    entries = [
        (round, "train", client, way, "model", "weights", "weights", up / (rounds * clients))
        for round in range(1, rounds + 1)
        for client in range(clients)
        for way in ("up", "down")
    ]
    names = ["round", "phase", "client", "direction", "part", "artefact", "kind", "bytes"]
    return pd.DataFrame(entries, columns=names)


def _times(rounds: int, seconds: float) -> pd.DataFrame:
    return pd.DataFrame(
        [(t, what, s * seconds) for t in range(1, rounds + 1) for what, s in (("train", 0.75), ("evaluate", 0.25))],
        columns=["round", "what", "seconds"],
    )


def rising_curve(rounds: int, seed: int) -> list[float]:
    """A rising curve with noise."""
    rng = np.random.default_rng(seed)
    rise = 80 * (1 - np.exp(-np.arange(1, rounds + 1) / (rounds / 4)))
    return np.clip(rise + rng.normal(0, 3, rounds), 0, 100).tolist()
