"""Pixels and the net of the pfl-research benchmark. Imports only torch: pfl's environment may have nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def pixels(images: int) -> tuple[Tensor, Tensor]:
    """CIFAR-shaped bytes with balanced labels."""
    torch.manual_seed(0)
    return torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8), torch.arange(images) % 10


def pfl_cnn() -> nn.Sequential:
    """The net of the pfl-research benchmark: 1,626,442 parameters."""
    body = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2))
    flat = nn.Sequential(nn.Dropout(0.25), nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(body, flat, nn.Linear(128, 10))
