"""Fingerprints of data, split and network for a resume, because the settings do not determine their contents."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import torch
from torch import nn

from unskew.base.per_client import clients_for_statistics
from unskew.base.source_text import source_text
from unskew.data import Dataset
from unskew.data.split_cache import ClientRowNumbers
from unskew.models.model import Model
from unskew.wire.ledger import fingerprint

ADDED_LATER = ("test rows", "network")  # runs saved by older versions lack these
LIBRARIES = ("torch.", "unskew.", "torchvision.", "timm.")


def data_fingerprints(dataset: Dataset) -> dict[str, str]:
    """Of the training rows, and of everything else in a dataset that may change a result."""
    train, others = dataset.train, [dataset.test, *([dataset.validation] if dataset.validation else [])]
    tensors = {f"{i}/{key}": getattr(split, key) for i, split in enumerate(others) for key in ("x", "y")}
    groups = [None if split.group is None else split.group.tolist() for split in (train, *others)]
    words = json.dumps([groups, dataset.classes, dataset.mean, dataset.std], default=str)
    tensors["words"] = torch.tensor(list(hashlib.sha256(words.encode()).digest()))
    return {"data": fingerprint({"x": train.x, "y": train.y}), "test rows": fingerprint(tensors)}


def split_fingerprint(split: ClientRowNumbers) -> dict[str, str]:
    """Of the clients' rows."""
    rows = [split.rows[k] for k in clients_for_statistics(len(split.rows))]
    sizes = torch.tensor([len(row) for row in rows])
    return {"partition": fingerprint({"sizes": sizes, "rows": torch.from_numpy(np.concatenate(rows))})}


def model_fingerprints(model: Model, custom: nn.Sequential | None) -> dict[str, str]:
    """Of names and shapes, and of a network from Python also its layers and the code of its own classes.

    Initial weights may differ: those of a run are in its folder.
    """
    shapes = {"model": fingerprint({name: torch.tensor(tensor.shape) for name, tensor in model.initial.items()})}
    if custom is None:
        return shapes
    own = sorted(
        {type(layer) for layer in custom.modules() if not type(layer).__module__.startswith(LIBRARIES)}, key=str
    )
    text = "\n".join([repr(custom), *map(source_text, own)])
    return shapes | {"network": hashlib.sha256(text.encode()).hexdigest()[:16]}


def changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """The names of fingerprints that differ."""
    return [name for name, value in now.items() if before.get(name, value if name in ADDED_LATER else "") != value]
