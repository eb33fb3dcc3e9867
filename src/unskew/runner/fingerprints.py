"""Fingerprints of data, split and network, which a resume compares: settings do not tell their contents."""

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

NEW = ("test rows", "network")  # which runs of the version before have not
LIBRARIES = ("torch.", "unskew.", "torchvision.", "timm.")


def of_data(dataset: Dataset) -> dict[str, str]:
    """Of the training rows, and of everything else in a dataset that may change a result."""
    train, others = dataset.train, [dataset.test, *([dataset.validation] if dataset.validation else [])]
    tensors = {f"{i}/{key}": getattr(split, key) for i, split in enumerate(others) for key in ("x", "y")}
    groups = [None if split.group is None else split.group.tolist() for split in (train, *others)]
    words = json.dumps([groups, dataset.classes, dataset.mean, dataset.std], default=str)
    tensors["words"] = torch.tensor(list(hashlib.sha256(words.encode()).digest()))
    return {"data": fingerprint({"x": train.x, "y": train.y}), "test rows": fingerprint(tensors)}


def of_partition(parts: ClientRowNumbers) -> dict[str, str]:
    """Of the clients' rows."""
    rows = [parts.rows[k] for k in clients_for_statistics(len(parts.rows))]
    sizes = torch.tensor([len(row) for row in rows])
    return {"partition": fingerprint({"sizes": sizes, "rows": torch.from_numpy(np.concatenate(rows))})}


def of_model(model: Model, custom: nn.Sequential | None) -> dict[str, str]:
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
    return [name for name, value in now.items() if before.get(name, value if name in NEW else "") != value]
