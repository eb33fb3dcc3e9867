"""The workloads of the speed benchmarks. Pixels are synthetic: times do not depend on them, and nothing is scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from nets import MEAN, STD, pfl_cnn, pixels
from torch import nn

import unskew as us
from unskew import models

AUGMENT = {"crop": 4, "flip": True, "cutout": 16}
FEDLMD = {"epochs": 5, "batch": 50, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}


@dataclass(frozen=True)
class Workload:
    """A federation, described for unskew and for the bare loop."""

    name: str
    partition: dict[str, Any]
    participation: float
    local: dict[str, Any]
    model: str = "cnn"
    method: str = "fedavg"
    augment: dict[str, Any] = field(default_factory=dict)
    images: int = 50_000

    def experiment(self, engine: str, device: str, precision: str, rounds: int, workers: int = 1) -> us.Experiment:
        return us.Experiment(
            method=self.method,
            rounds=rounds,
            participation=self.participation,
            data={"name": "synthetic", "augment": self.augment},
            partition=self.partition,
            local=self.local,
            engine={"name": engine, "workers": workers if engine == "loop" else None},
            device=device,
            precision=precision,
        )

    def data(self) -> us.Dataset:
        """CIFAR-shaped bytes with balanced labels, and a small test set."""
        x, y = pixels(self.images)
        rows = {"x_test": x[:1000], "y_test": y[:1000]}  # never scored, only timed
        return us.from_arrays(x, y, name="synthetic", mean=MEAN, std=STD, **rows)

    def net(self) -> nn.Sequential:
        torch.manual_seed(0)
        return pfl_cnn() if self.model == "pfl" else models.ZOO[self.model]((3, 32, 32), 10)


SHARDS = {"name": "shards", "clients": 100, "per_client": 2}
RAGGED = {"name": "dirichlet", "clients": 100, "alpha": 0.05, "min": 10, "draws": "released", "seed": 19940817}
PFL = {"epochs": 1, "batch": 10, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant"}
MILLION = {"name": "on-demand", "clients": 1_000_000, "rows": 50, "per_client": 2}
SIZES = (10, 30, 100, 300, 1000)  # clients a round
FLEA = {"epochs": 5, "batch": 32, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}

WORKLOADS = {
    w.name: w
    for w in (
        Workload("pfl-cifar", {"name": "iid", "clients": 1000}, 0.05, PFL, model="pfl"),
        Workload("lmd-shards-10", SHARDS, 0.1, FEDLMD, augment=AUGMENT),
        Workload("lmd-shards-100", SHARDS, 1.0, FEDLMD, augment=AUGMENT),
        Workload("lmd-ragged", RAGGED, 0.1, FEDLMD, method="fedlmd", augment=AUGMENT),
        Workload("flea-mobilenet", {"name": "iid", "clients": 500}, 0.1, FLEA, model="mobilenet_v2"),
        # The overhead of FLea; the bare loop does not support it.
        Workload("flea-mobilenet-flea", {"name": "iid", "clients": 500}, 0.1, FLEA, "mobilenet_v2", "flea"),
        *(Workload(f"scale-{n}", {"name": "iid", "clients": 1000}, n / 1000, FEDLMD) for n in SIZES),
        # A small net, so that costs that grow with the clients become visible.
        Workload("scale-clients", MILLION, 0.001, PFL, model="mlp"),
    )
}

# Workloads of several sizes under one name.
GROUPS = {"lmd-shards": ["lmd-shards-10", "lmd-shards-100"], "scale": [f"scale-{n}" for n in SIZES]}


def workloads_named(names: list[str]) -> list[Workload]:
    """Workloads by name; a group's name stands for all of its workloads."""
    return [WORKLOADS[each] for name in names for each in GROUPS.get(name, [name])]
