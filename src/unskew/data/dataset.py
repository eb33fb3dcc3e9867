"""The two value types that every reader returns: `Split`, the rows of one split, and `Dataset`, the named splits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.data.stratified_split import stratified_mask


# eq=False: comparing tensors field by field would be ambiguous and slow.
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

    def __repr__(self) -> str:
        groups = "" if self.group is None else f", {len(np.unique(self.group))} groups"
        dtype = str(self.x.dtype).removeprefix("torch.")
        return f"Split(x={dtype} {list(self.x.shape)}, y={list(self.y.shape)}{groups})"

    def take(self, rows: np.ndarray) -> "Split":
        """The chosen rows, copied; rows: [M] indices or [N] bool."""
        index = torch.from_numpy(np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64))
        group = None if self.group is None else self.group[index.numpy()]
        return Split(self.x[index], self.y[index], group)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Named splits of one classification dataset, validated on creation.

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
        for split_name, split in self._splits():
            name = f"{self.name}, {split_name} split"
            _check_rows(split, name)
            check_values(split, name, len(self.classes))
            self._check_same_format(split, name)
        _check_scale(self.name, self.mean, self.std, self.channels)

    def __repr__(self) -> str:
        """Shapes instead of tensors, a line per split."""
        classes = ", ".join(self.classes[:10]) + (", ..." if len(self.classes) > 10 else "")
        scale = "" if self.mean is None else f"\n  mean={self.mean}, std={self.std}"
        splits = "".join(f"\n  {name}: {split}" for name, split in self._splits())
        return f"Dataset({self.name!r}, {len(self.classes)} classes: {classes}{splits}{scale})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row, for images (C, H, W)."""
        return tuple(self.train.x.shape[1:])

    @property
    def channels(self) -> int:
        """Size of dimension 1 of x, the dimension of `mean` and `std`."""
        return self.shape[0]

    @property
    def num_classes(self) -> int:
        """Number of classes, including classes without rows."""
        return len(self.classes)

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        """Model input from stored rows, on the device of the rows: scaled to [0, 1] if uint8, then standardised.

        x: [B, ...] as stored; returns [B, ...] float32 in new memory.
        """
        return self.input_scaling(x.device)(x)

    def input_scaling(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "InputScaling":
        """`prepare` with its constants already on `device`, so that no step waits for a copy."""
        return input_scaling(self.mean, self.std, self.shape, device, dtype)

    preparer = input_scaling  # the old name, for one version

    def hold_out(self, fraction: float, seed: int) -> "Dataset":
        """A dataset with a fraction of the training rows moved to validation: stratified by class, drawn by `seed`."""
        if self.validation is not None:
            raise UserError(
                f"{self.name}: expected no validation split yet, found one of {len(self.validation)} rows; "
                "hold rows out only once"
            )
        held_out = stratified_mask(self.train.y.cpu().numpy(), fraction, seed, self.name)
        return replace(self, train=self.train.take(~held_out), validation=self.train.take(held_out))

    def _splits(self) -> list[tuple[str, Split]]:
        splits = [("train", self.train), ("test", self.test)]
        return splits if self.validation is None else [*splits, ("validation", self.validation)]

    def _check_same_format(self, split: Split, name: str) -> None:
        train, x = self.train.x, split.x
        if x.shape[1:] != train.shape[1:] or x.dtype != train.dtype:
            raise UserError(
                f"{name}: expected rows like the training rows, shape {list(train.shape[1:])} and {train.dtype}, "
                f"found shape {list(x.shape[1:])} and {x.dtype}"
            )


def _check_rows(split: Split, name: str) -> None:
    """Check the types and lengths of one split."""
    x, y, group = split.x, split.y, split.group
    if x.dtype not in (torch.uint8, torch.float32):
        raise UserError(f"{name}: expected x as uint8 or float32, found {x.dtype}; convert with x.float()")
    if y.dtype != torch.int64 or y.ndim != 1:
        raise UserError(f"{name}: expected y as int64 of shape [N], found {y.dtype} of shape {list(y.shape)}")
    if x.ndim < 2:
        raise UserError(f"{name}: expected x of shape [N, ...], found {list(x.shape)}; try x.reshape(len(x), -1)")
    if len(x) != len(y):
        raise UserError(f"{name}: expected one label per row, found {len(x)} rows in x and {len(y)} labels in y")
    if x.numel() == 0:
        raise UserError(f"{name}: expected at least one row with values, found x of shape {list(x.shape)}")
    if group is not None and group.shape != (len(y),):
        raise UserError(f"{name}: expected one group per row, shape [{len(y)}], found {list(group.shape)}")


def check_values(split: Split, name: str, classes: int) -> None:
    """Check that labels are within the classes and that numbers are finite."""
    low, high = int(split.y.min()), int(split.y.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise UserError(f"{name}: expected labels from 0 to {classes - 1} ({classes} classes), found {wrong}")
    if split.x.is_floating_point():
        bad = ~torch.isfinite(split.x)
        if bad.any():
            row = int(bad.flatten(1).any(dim=1).nonzero()[0])
            raise UserError(
                f"{name}: expected finite numbers in float32, found nan or infinity (first in row {row}); "
                "clean or rescale x first, for example with numpy.nan_to_num(x)"
            )


@dataclass(frozen=True, eq=False)
class InputScaling:
    """Scales stored rows to model inputs; kernels that fuse the scaling read its constants.

    mean, std: [c, 1, ...] float32 mean and standard deviation per channel, on the rows' device; or both None.
    """

    mean: Tensor | None
    std: Tensor | None
    dtype: torch.dtype

    def __call__(self, x: Tensor) -> Tensor:
        scaled = _to_unit_scale(x)
        if self.mean is not None and self.std is not None:
            scaled = scaled.sub_(self.mean).div_(self.std)
        return scaled.to(self.dtype)


def input_scaling(
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    shape: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
) -> InputScaling:
    """Scaling of stored rows of `shape`: uint8 is divided by 255, then channels are standardised if `mean` is known."""
    if mean is None or std is None:
        return InputScaling(None, None, dtype)
    broadcast = (-1, *(1 for _ in shape[1:]))
    mean_tensor, std_tensor = (torch.tensor(values, device=device).view(broadcast) for values in (mean, std))
    return InputScaling(mean_tensor, std_tensor, dtype)


def _to_unit_scale(x: Tensor) -> Tensor:
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
