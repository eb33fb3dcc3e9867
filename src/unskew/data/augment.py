"""Augmentation on the device, drawn from the plan: random crop with padding, horizontal flip, cutout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.data.dataset import Dataset

STREAM, TRAIN, TEST = 77, 0, 1  # so that no other draws of the same seed are these
AT_ONCE = 5000  # rows, whose indices are eight times as large as they are


@dataclass(frozen=True)
class Augment:
    """Crop pads with zeros on the raw pixels; cutout blanks a square centred anywhere, after normalisation."""

    crop: int = 0  # pixels of padding
    flip: bool = False
    cutout: int = 0  # side of the square

    def __bool__(self) -> bool:
        return bool(self.crop or self.flip or self.cutout)

    def draw(self, generator: np.random.Generator, steps: int, batch: int, shape: tuple[int, ...]) -> dict[str, Tensor]:
        """[steps, batch, ...] choices for rows of `shape` [channels, height, width]."""
        # Always the same numbers in the same order, so that one option does not change another's draws.
        numbers = generator.random((steps, batch, 5))
        drawn = {
            "offset": (numbers[..., :2] * (2 * self.crop + 1)).astype(np.int64),
            "flip": numbers[..., 2] < (0.5 if self.flip else 0.0),
            "hole": (numbers[..., 3:] * shape[-2:]).astype(np.int64),
        }
        return {name: torch.from_numpy(array) for name, array in drawn.items()}

    def apply(self, x: Tensor, draw: dict[str, Tensor], prepare: Callable[[Tensor], Tensor]) -> Tensor:
        """Raw rows [n, c, h, w] to model inputs, with one draw a row."""
        height, width = x.shape[-2:]
        rows = torch.arange(height, device=x.device) + draw["offset"][:, :1]
        columns = torch.arange(width, device=x.device).expand(len(x), width)
        columns = torch.where(draw["flip"][:, None], width - 1 - columns, columns) + draw["offset"][:, 1:]
        if self.crop or self.flip:
            padded = F.pad(x, (self.crop,) * 4)
            n = torch.arange(len(x), device=x.device)[:, None, None]
            # Indices on both sides of a slice put the slice last.
            x = padded[n, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        x = prepare(x)
        return x * self._outside(draw["hole"], height, width).to(x.dtype) if self.cutout else x

    def once(self, x: Tensor, seed: int, split: int) -> Tensor:
        """Raw rows [n, c, h, w] from raw rows, with crop and flip drawn for good, as in FLea's code."""
        generator, rows = np.random.default_rng((STREAM, seed, split)), tuple(x.shape[1:])
        drawn = {name: t[0] for name, t in self.draw(generator, 1, len(x), rows).items()}
        parts = [slice(first, first + AT_ONCE) for first in range(0, len(x), AT_ONCE)]
        return torch.cat([self.apply(x[p], {name: t[p] for name, t in drawn.items()}, lambda t: t) for p in parts])

    def _outside(self, hole: Tensor, height: int, width: int) -> Tensor:
        """[n, 1, h, w], 0 inside the square, which the border clips."""

        def inside(centre: Tensor, size: int) -> Tensor:
            at = torch.arange(size, device=centre.device) - (centre[:, None] - self.cutout // 2)
            return (at >= 0) & (at < self.cutout)

        return ~(inside(hole[:, 0], height)[:, None, :, None] & inside(hole[:, 1], width)[:, None, None, :])


def augmented_once(dataset: Dataset, augment: Augment, seed: int, *, train: bool, test: bool) -> Dataset:
    """The dataset with crop and flip in its training or test rows; validation rows stay as they are."""
    if augment and train:
        dataset = replace(dataset, train=replace(dataset.train, x=augment.once(dataset.train.x, seed, TRAIN)))
    if augment and test:
        dataset = replace(dataset, test=replace(dataset.test, x=augment.once(dataset.test.x, seed, TEST)))
    return dataset
