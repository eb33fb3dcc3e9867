"""The workloads that speed is measured on. Pixels are synthetic: they decide no time, and no accuracy is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import unskew as us
from unskew import models

AUGMENT = {"crop": 4, "flip": True, "cutout": 16}
FEDLMD = {"epochs": 5, "batch": 50, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}


@dataclass(frozen=True)
class Workload:
    """A federation, and how a practitioner's loop would see it."""

    name: str
    partition: dict[str, Any]
    participation: float
    local: dict[str, Any]
    model: str = "cnn"
    method: str = "fedavg"
    augment: dict[str, Any] = field(default_factory=dict)
    images: int = 50_000

    def experiment(self, engine: str, device: str, precision: str, rounds: int) -> us.Experiment:
        return us.Experiment(
            method=self.method,
            rounds=rounds,
            participation=self.participation,
            data={"name": "synthetic", "augment": self.augment},
            partition=self.partition,
            local=self.local,
            engine={"name": engine, "workers": 1},
            device=device,
            precision=precision,
        )

    def data(self) -> us.Dataset:
        """CIFAR-shaped bytes with balanced labels, and a small test set."""
        torch.manual_seed(0)
        x = torch.randint(0, 256, (self.images + 1000, 3, 32, 32), dtype=torch.uint8)
        y = torch.arange(len(x)) % 10
        mean, std = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
        rows = {"x_test": x[-1000:], "y_test": y[-1000:]}
        return us.from_arrays(x[:-1000], y[:-1000], name="synthetic", mean=mean, std=std, **rows)

    def net(self) -> nn.Sequential:
        torch.manual_seed(0)
        return pfl_cnn() if self.model == "pfl" else models.ZOO[self.model]((3, 32, 32), 10)


def pfl_cnn() -> nn.Sequential:
    """The net of the pfl-research benchmark: 1,626,442 parameters."""
    body = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2))
    flat = nn.Sequential(nn.Dropout(0.25), nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(body, flat, nn.Linear(128, 10))


SHARDS = {"name": "shards", "clients": 100, "per_client": 2}
RAGGED = {"name": "dirichlet", "clients": 100, "alpha": 0.05, "min": 10, "draws": "released", "seed": 19940817}
PFL = {"epochs": 1, "batch": 10, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant"}
FLEA = {"epochs": 5, "batch": 32, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}

WORKLOADS = {
    w.name: w
    for w in (
        Workload("pfl-cifar", {"name": "iid", "clients": 1000}, 0.05, PFL, model="pfl"),
        Workload("lmd-shards-10", SHARDS, 0.1, FEDLMD, augment=AUGMENT),
        Workload("lmd-shards-100", SHARDS, 1.0, FEDLMD, augment=AUGMENT),
        Workload("lmd-ragged", RAGGED, 0.1, FEDLMD, method="moon", augment=AUGMENT),
        Workload("flea-mobilenet", {"name": "iid", "clients": 500}, 0.1, FLEA, model="mobilenet_v2"),
        *(Workload(f"scale-{n}", {"name": "iid", "clients": 1000}, n / 1000, FEDLMD) for n in (10, 30, 100, 300, 1000)),
    )
}
