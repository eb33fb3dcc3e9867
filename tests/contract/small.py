"""The federation of these tests: three clients of different sizes, two rounds, fewer than 5,000 parameters."""

from typing import Any

import numpy as np
import parts
import torch
from torch import nn

import unskew as us
from unskew.base.tree import State
from unskew.protocol import method_registry
from unskew.runner.prepare_run import prepare
from unskew.server.federation import Federation

SIZES = (11, 1, 6)  # rows of the clients: 2 batches and a part, less than one batch, one batch and a part
# A batch that repeats a single row has no variance: after BatchNorm its activations are rounding noise around 0, and
# the sign of the noise decides the ReLU. With two rows the result is well defined.
NORM_SIZES = (11, 2, 6)
METHODS = [*(name for name in method_registry.method_names() if name not in parts.METHODS), *parts.METHODS]
# Variants of a method that train differently.
VARIANTS: dict[str, list] = {
    "flea-half": ["flea", {"flea": {"fraction": 0.5}}],
    "flea-released": ["flea", {"flea": {"fraction": 0.4, "rules": "released"}}],
    "fedmix-naive": ["fedmix", {"mix": {"group": 2}}],
    "fedmix-taylor": ["fedmix", {"mix": {"group": 2, "variant": "taylor", "lam": 0.3}}],
    "fedmix-same": ["fedmix", {"mix": {"group": 2, "same_class": True}}],
    "feddata-half": ["feddata", {"pool": {"fraction": 0.5}}],
    "feddata-released": ["feddata", {"pool": {"fraction": 0.5, "rules": "released"}}],
}
ENGINES = ("plain", "loop", "stacked")
# SGD without clipping, because clipping needs dense gradients.
LOCAL = {"epochs": 2, "batch": 4, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}
ABSENT = [{"clients": [2], "rounds": [2, 3]}]


def network(norm: bool) -> nn.Sequential:
    """Five inputs, three classes, dropout; with `norm` also BatchNorm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        extra = [nn.BatchNorm1d(6)] if norm else []
        body = nn.Sequential(nn.Linear(5, 6), *extra, nn.ReLU(), nn.Dropout(0.2))
        return nn.Sequential(body, nn.Sequential(nn.Linear(6, 4), nn.Tanh()), nn.Linear(4, 3))


def dataset(norm: bool = False) -> us.Dataset:
    """Random rows of three clients of different sizes."""
    gen, sizes = np.random.default_rng(3), NORM_SIZES if norm else SIZES
    n = sum(sizes)
    x, y = gen.normal(size=(n, 5)).astype("float32"), np.arange(n) % 3
    return us.from_arrays(x, y, x_test=x, y_test=y, group=np.repeat(np.arange(3), sizes))


def experiment(method: Any, engine: str = "loop", **settings: Any) -> us.Experiment:
    """Two rounds in float64, with a client that is absent in the second."""
    settings = {"precision": "float64", "local": LOCAL | {"clip": 1.0}, "rounds": 2, "absence": ABSENT} | settings
    engine_config = {"name": engine, "workers": settings.pop("workers", 1)}
    method = VARIANTS.get(method, method) if isinstance(method, str) else method
    return us.Experiment(method=method, partition={"name": "group"}, device="cpu", engine=engine_config, **settings)


def federation(method: Any, engine: str = "loop", norm: bool = False, **settings: Any) -> Federation:
    return prepare(experiment(method, engine, **settings), data=dataset(norm), model=network(norm)).federation


def trained(method: str, engine: str, **local: Any) -> State:
    """The model after two rounds."""
    fed = federation(method, engine, local=LOCAL | local)
    snap = fed.start()
    for _ in range(2):
        snap, _ = fed.run_round(snap)
        fed.store.commit()
    return snap.model
