"""UCI-HAR, and other phone sensor data stored in its folder layout.

FOLDER/activity_labels.txt                                         number and name of each of the six activities
FOLDER/SPLIT/y_SPLIT.txt, FOLDER/SPLIT/subject_SPLIT.txt           activity and person per row; SPLIT: train or test
FOLDER/SPLIT/Inertial Signals/{body_acc,...}_{x,y,z}_SPLIT.txt     one channel per file, 128 steps per row

A channel is named by its signal (`body_acc`: the axes x, y and z) or by signal and axis (`body_acc_x`). Several are
joined by "+" after the name of the dataset: `ucihar:total_acc+body_gyro`, `hapt:body_gyro`.
"""

import io
from pathlib import Path

import numpy as np
import torch

from unskew.base.errors import UserError, did_you_mean
from unskew.data.checked_files import check_labels, missing_files_error, read_checked
from unskew.data.dataset import Dataset, Split

_STEPS = 128
_ACTIVITIES = 6
_AXES = ("_x", "_y", "_z")
_OFFICIAL_ROWS = {"train": 7352, "test": 2947}
_UNPACK_AGAIN = "the file is truncated or altered; unpack the archive again"


def ucihar(root: Path, channels: tuple[str, ...] = ("body_acc",), *, verify: bool = True) -> Dataset:
    """UCI-HAR from `UCI HAR Dataset` or `UCI-HAR` under root: float32 [N, 1, 128, C] as stored, grouped by subject.

    channels: body_acc, body_gyro, total_acc, or single axes of them, in the order of the last dimension;
    verify: expect the official 7352 training and 2947 test rows.
    """
    data = _read("ucihar", root, ("UCI HAR Dataset", "UCI-HAR"), channels)
    for split, rows in (("train", data.train), ("test", data.test)):
        if verify and len(rows) != _OFFICIAL_ROWS[split]:
            raise UserError(
                f"ucihar, {split} split: expected the official {_OFFICIAL_ROWS[split]} rows, found {len(rows)}; "
                "unpack the archive again, or set data.verify=false for your own data"
            )
    return data


def hapt(root: Path, channels: tuple[str, ...] = ("total_acc",), *, verify: bool = True) -> Dataset:
    """Windows of HAPT in the layout of UCI-HAR from `hapt` under root: float32 [N, 1, 128, C], grouped by subject.

    channels: total_acc, body_gyro, or single axes of them; verify: has no effect, because there is no official copy.
    """
    return _read("hapt", root, ("hapt",), channels)


def _read(name: str, root: Path, folders: tuple[str, ...], channels: tuple[str, ...]) -> Dataset:
    present = [root / folder for folder in folders if (root / folder).is_dir()]
    candidates = present[:1] or [root / folder for folder in folders]
    names = [_axes(name, channels, folder) for folder in candidates]
    files = [_files(folder, axes) for folder, axes in zip(candidates, names)]
    if not present or not all(file.is_file() for file in files[0]):
        raise missing_files_error(name, root, files)
    classes = _activities(files[0][0])
    train, test = (_read_split(candidates[0], split, names[0], len(classes)) for split in ("train", "test"))
    return Dataset(f"{name}:{'+'.join(channels)}", train, test, classes)


def _axes(name: str, channels: tuple[str, ...], folder: Path) -> list[str]:
    """The channels as single axes, named like the files; a channel without any file in the folder is refused."""
    tail = "_train.txt"
    existing = {file.name.removesuffix(tail) for file in (folder / "train" / "Inertial Signals").glob(f"*{tail}")}
    axes: list[str] = []
    for channel in channels:
        wanted = [channel] if channel.endswith(_AXES) else [channel + axis for axis in _AXES]
        if existing and existing.isdisjoint(wanted):
            known = sorted({file[:-2] for file in existing})
            raise UserError(
                f"{name}: expected channels {', '.join(known)} (or one axis, such as {min(existing)}), joined "
                f"by +, found {channel or 'nothing'}{did_you_mean(channel, [*known, *existing])}"
            )
        axes += wanted
    if len(set(axes)) != len(axes):
        raise UserError(f"{name}: expected every channel once, found {'+'.join(channels)}; remove the repeated one")
    return axes


def _files(folder: Path, axes: list[str]) -> list[Path]:
    """All files to read, starting with the list of activities."""
    files = [folder / "activity_labels.txt"]
    for split in ("train", "test"):
        files += [folder / split / f"{kind}_{split}.txt" for kind in ("y", "subject")]
        files += [_signal_file(folder, split, axis) for axis in axes]
    return files


def _signal_file(folder: Path, split: str, axis: str) -> Path:
    return folder / split / "Inertial Signals" / f"{axis}_{split}.txt"


def _activities(path: Path) -> tuple[str, ...]:
    """Class names in the order of their numbers, which must be 1 to 6."""
    lines = [line.split(maxsplit=1) for line in read_checked(path).decode("latin-1").splitlines() if line.strip()]
    numbers = [line[0] for line in lines if len(line) == 2]
    if numbers != [str(i + 1) for i in range(_ACTIVITIES)] or len(lines) != len(numbers):
        raise UserError(
            f"{path}: expected {_ACTIVITIES} lines, each with a number (1, 2, ...) and a name, "
            f"found {len(lines)} lines with the numbers {', '.join(numbers) or '(none)'}; {_UNPACK_AGAIN}"
        )
    return tuple(line[1].strip() for line in lines)


def _read_split(folder: Path, split: str, axes: list[str], classes: int) -> Split:
    labels, subjects = (folder / split / f"{kind}_{split}.txt" for kind in ("y", "subject"))
    y, group = _integers(labels), _integers(subjects)
    check_labels(labels, y, classes, first=1)
    if len(group) != len(y):
        raise UserError(f"{subjects}: expected {len(y)} rows as in {labels.name}, found {len(group)}; {_UNPACK_AGAIN}")
    x = np.empty((len(y), 1, _STEPS, len(axes)), dtype=np.float32)
    for i, axis in enumerate(axes):
        x[:, 0, :, i] = _signal(_signal_file(folder, split, axis), labels.name, len(y))
    return Split(torch.from_numpy(x), torch.from_numpy(y - 1), group)


def _integers(path: Path) -> np.ndarray:
    """The integers of a file, [N] int64."""
    try:
        return np.array([int(word) for word in read_checked(path).split()], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise UserError(f"{path}: expected one integer per line, found: {error}; {_UNPACK_AGAIN}") from error


def _signal(path: Path, labels: str, rows: int) -> np.ndarray:
    """One channel as float32 [rows, 128]."""
    import pandas as pd  # imported here because it is slow to import and other datasets do not need it

    try:
        # pandas reads these files three times as fast as NumPy.
        table = pd.read_csv(io.BytesIO(read_checked(path)), sep=r"\s+", header=None, dtype=np.float32)
    except (ValueError, pd.errors.ParserError) as error:
        raise UserError(
            f"{path}: expected {_STEPS} numbers per row, found: {str(error).strip()}; {_UNPACK_AGAIN}"
        ) from error
    x = table.to_numpy()
    if x.shape != (rows, _STEPS):
        raise UserError(
            f"{path}: expected {rows} rows as in {labels} of {_STEPS} numbers, "
            f"found {x.shape[0]} rows of {x.shape[1]}; {_UNPACK_AGAIN}"
        )
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        raise UserError(
            f"{path}: expected {_STEPS} finite numbers per row, found fewer in row {bad.argmax()}; {_UNPACK_AGAIN}"
        )
    return x
