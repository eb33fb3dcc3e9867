"""The two value types that every reader returns: `Split`, the rows of one split, and `Dataset`, the named splits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.data.stratified_split import stratified


# Identity comparison: comparing tensors field by field would be ambiguous and slow.
@dataclass(frozen=True, eq=False)
class Split:
    """Rows of one split.

    x: [N, ...] uint8 (images as [N, C, H, W]) or float32 of any shape; y: [N] int64;
    group: [N] natural owner of a row (writer, speaker, subject), if known.
    """

    x: torch.Tensor
    y: torch.Tensor
    group: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: np.ndarray) -> "Split":
        """The chosen rows, copied; rows: [M] indices or [N] bool."""
        index = torch.from_numpy(np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64))
        group = None if self.group is None else self.group[index.numpy()]
        return Split(self.x[index], self.y[index], group)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Named splits of one classification dataset, checked when made.

    mean, std: one value per channel (dimension 1 of x), on the [0, 1] scale for uint8 data.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    validation: Split | None = None

    def __post_init__(self) -> None:
        if not self.classes:
            raise UserError(f"{self.name}: expected at least one class name, found none")
        for label, split in self._splits():
            where = f"{self.name}, {label} split"
            _check_rows(split, where)
            check_values(split, where, len(self.classes))
            self._check_alike(split, where)
        _check_scale(self.name, self.mean, self.std, self.channels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row, for images (C, H, W)."""
        return tuple(self.train.x.shape[1:])

    @property
    def channels(self) -> int:
        """Size of dimension 1 of x, which `mean` and `std` run along."""
        return self.shape[0]

    @property
    def num_classes(self) -> int:
        """Number of classes, including any that no row has."""
        return len(self.classes)

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        """Model input from stored rows, on the rows' own device: scaled to [0, 1] if uint8, then standardised.

        x: [B, ...] as stored; returns [B, ...] float32, never the same memory as x.
        """
        return self.preparer(x.device)(x)

    def preparer(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "InputScaling":
        """`prepare` with its constants on a device already, so that no step waits for a copy."""
        return preparer(self.mean, self.std, self.shape, device, dtype)

    def hold_out(self, fraction: float, seed: int) -> "Dataset":
        """A dataset with `fraction` of the training rows moved to validation, stratified by class, pure in `seed`."""
        if self.validation is not None:
            raise UserError(
                f"{self.name}: expected no validation split yet, found one of {len(self.validation)} rows; "
                "hold rows out once, or leave hold_out away"
            )
        out = stratified(self.train.y.cpu().numpy(), fraction, seed, self.name)
        return replace(self, train=self.train.take(~out), validation=self.train.take(out))

    def _splits(self) -> list[tuple[str, Split]]:
        named = [("train", self.train), ("test", self.test)]
        return named if self.validation is None else [*named, ("validation", self.validation)]

    def _check_alike(self, split: Split, where: str) -> None:
        want, found = self.train.x, split.x
        if found.shape[1:] != want.shape[1:] or found.dtype != want.dtype:
            raise UserError(
                f"{where}: expected rows like the training rows, {list(want.shape[1:])} of {want.dtype}, "
                f"found {list(found.shape[1:])} of {found.dtype}"
            )


def _check_rows(split: Split, where: str) -> None:
    """Types and lengths of one split."""
    x, y, group = split.x, split.y, split.group
    if x.dtype not in (torch.uint8, torch.float32):
        raise UserError(f"{where}: expected x as uint8 or float32, found {x.dtype}; convert with x.float()")
    if y.dtype != torch.int64 or y.ndim != 1:
        raise UserError(f"{where}: expected y as int64 of shape [N], found {y.dtype} of shape {list(y.shape)}")
    if x.ndim < 2:
        raise UserError(f"{where}: expected x of shape [N, ...], found {list(x.shape)}; try x.reshape(len(x), -1)")
    if len(x) != len(y):
        raise UserError(f"{where}: expected one label per row, found {len(x)} rows in x and {len(y)} labels in y")
    if x.numel() == 0:
        raise UserError(f"{where}: expected at least one row with values, found x of shape {list(x.shape)}")
    if group is not None and group.shape != (len(y),):
        raise UserError(f"{where}: expected one group per row, shape [{len(y)}], found {list(group.shape)}")


def check_values(split: Split, where: str, classes: int) -> None:
    """Labels within the classes, and finite numbers."""
    low, high = int(split.y.min()), int(split.y.max())
    if low < 0 or high >= classes:
        found = low if low < 0 else high
        raise UserError(f"{where}: expected labels from 0 to {classes - 1} ({classes} classes), found {found}")
    if split.x.is_floating_point():
        bad = ~torch.isfinite(split.x)
        if bad.any():
            row = int(bad.flatten(1).any(dim=1).nonzero()[0])
            raise UserError(
                f"{where}: expected finite numbers in float32, found nan or infinity (first in row {row}); "
                "clean or rescale x first, for example with numpy.nan_to_num(x)"
            )


@dataclass(frozen=True, eq=False)
class InputScaling:
    """From stored rows to model inputs, with its numbers to be read by a kernel that does the same.

    centre, width: [c, 1, ...] float32 mean and deviation of each channel, on the rows' device; or both None.
    """

    centre: Tensor | None
    width: Tensor | None
    dtype: torch.dtype

    def __call__(self, x: Tensor) -> Tensor:
        scaled = _scaled(x)
        if self.centre is not None and self.width is not None:
            scaled = scaled.sub_(self.centre).div_(self.width)
        return scaled.to(self.dtype)


def preparer(
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    shape: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
) -> InputScaling:
    """From stored rows of `shape` to model inputs: uint8 divided by 255, then standardised by channel where known."""
    if mean is None or std is None:
        return InputScaling(None, None, dtype)
    along = (-1, *(1 for _ in shape[1:]))
    centre, width = (torch.tensor(numbers, device=device).view(along) for numbers in (mean, std))
    return InputScaling(centre, width, dtype)


def _scaled(x: Tensor) -> Tensor:
    """Float32 in new memory; uint8 is divided by 255."""
    out = x.to(torch.float32, copy=True)
    return out.div_(255) if x.dtype == torch.uint8 else out


def _check_scale(name: str, mean: tuple[float, ...] | None, std: tuple[float, ...] | None, channels: int) -> None:
    if mean is None and std is None:
        return
    if mean is None or std is None:
        raise UserError(f"{name}: expected mean and std together, found only one; give both or neither")
    if len(mean) != channels or len(std) != channels:
        raise UserError(
            f"{name}: expected {channels} values (one per channel) in mean and std, found {len(mean)} and {len(std)}"
        )
    if not np.isfinite([*mean, *std]).all() or min(std) <= 0:
        raise UserError(f"{name}: expected finite mean and std above 0, found mean {mean} and std {std}")
