"""Augmentation on the device with draws from the plan: random crop with padding, horizontal flip, cutout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.data.dataset import Dataset

STREAM, TRAIN, TEST = 77, 0, 1  # stream ids: separate these draws from others with the same seed
CHUNK_ROWS = 5000  # limits memory: the indices of a row take eight times the bytes of the row


@dataclass(frozen=True)
class Augment:
    """Crop pads raw pixels with zeros; cutout zeroes a square with a random centre, after normalisation."""

    crop: int = 0  # pixels of padding
    flip: bool = False
    cutout: int = 0  # side of the square

    def __bool__(self) -> bool:
        return bool(self.crop or self.flip or self.cutout)

    def draw(self, generator: np.random.Generator, steps: int, batch: int, shape: tuple[int, ...]) -> dict[str, Tensor]:
        """[steps, batch, ...] draws for rows of `shape` [channels, height, width]."""
        # All numbers are always drawn in the same order, so one option does not change the draws of another.
        numbers = generator.random((steps, batch, 5))
        drawn = {
            "offset": (numbers[..., :2] * (2 * self.crop + 1)).astype(np.int64),
            "flip": numbers[..., 2] < (0.5 if self.flip else 0.0),
            "hole": (numbers[..., 3:] * shape[-2:]).astype(np.int64),
        }
        return {name: torch.from_numpy(array) for name, array in drawn.items()}

    def apply(self, x: Tensor, draw: dict[str, Tensor], prepare: Callable[[Tensor], Tensor]) -> Tensor:
        """Raw rows [n, c, h, w] to model inputs, with one draw per row."""
        height, width = x.shape[-2:]
        rows = torch.arange(height, device=x.device) + draw["offset"][:, :1]
        columns = torch.arange(width, device=x.device).expand(len(x), width)
        columns = torch.where(draw["flip"][:, None], width - 1 - columns, columns) + draw["offset"][:, 1:]
        if self.crop or self.flip:
            padded = F.pad(x, (self.crop,) * 4)
            n = torch.arange(len(x), device=x.device)[:, None, None]
            # Advanced indices on both sides of a slice move the sliced axis to the end.
            x = padded[n, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        x = prepare(x)
        return x * self._cutout_mask(draw["hole"], height, width).to(x.dtype) if self.cutout else x

    def apply_once(self, x: Tensor, seed: int, split: int) -> Tensor:
        """Raw rows [n, c, h, w] with crop and flip applied once and for all, as in FLea's code."""
        generator, shape = np.random.default_rng((STREAM, seed, split)), tuple(x.shape[1:])
        drawn = {name: t[0] for name, t in self.draw(generator, 1, len(x), shape).items()}
        chunks = [slice(first, first + CHUNK_ROWS) for first in range(0, len(x), CHUNK_ROWS)]
        return torch.cat([self.apply(x[c], {name: t[c] for name, t in drawn.items()}, lambda t: t) for c in chunks])

    def _cutout_mask(self, hole: Tensor, height: int, width: int) -> Tensor:
        """[n, 1, h, w], False inside the square, which is clipped at the border."""

        def inside(centre: Tensor, size: int) -> Tensor:
            offset = torch.arange(size, device=centre.device) - (centre[:, None] - self.cutout // 2)
            return (offset >= 0) & (offset < self.cutout)

        return ~(inside(hole[:, 0], height)[:, None, :, None] & inside(hole[:, 1], width)[:, None, None, :])


def augment_once(dataset: Dataset, augment: Augment, seed: int, *, train: bool, test: bool) -> Dataset:
    """The dataset with crop and flip applied to its training or test rows; validation rows stay unchanged."""
    if augment and train:
        dataset = replace(dataset, train=replace(dataset.train, x=augment.apply_once(dataset.train.x, seed, TRAIN)))
    if augment and test:
        dataset = replace(dataset, test=replace(dataset.test, x=augment.apply_once(dataset.test.x, seed, TEST)))
    return dataset
