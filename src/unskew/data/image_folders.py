"""Images in one folder per class: any such folder by its path, and CINIC-10 by its name.

ROOT/train/CLASS/*.png and ROOT/test/CLASS/*.png    this split is used; a folder `valid` is not read
ROOT/CLASS/*.png                                    test rows by a stratified fraction

Files are PNG or JPEG; hidden files are ignored, any other file among the images is refused. All images must have the
same size, because no image is resized. The first training image decides between greyscale (one channel) and colour
(three): greyscale images among colour ones are stored as colour, colour images among greyscale ones are refused, and
transparency is dropped.
"""

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from unskew.base.errors import UserError
from unskew.data.arrays import split_rows
from unskew.data.checked_files import missing_files_error, read_checked
from unskew.data.dataset import Dataset, Split

ImagesByClass: TypeAlias = dict[str, list[Path]]  # classes and images are sorted
ReadRows: TypeAlias = Callable[[Sequence[Path], tuple[int, ...], Callable[[Path], np.ndarray]], torch.Tensor]

_ENDINGS = (".png", ".jpg", ".jpeg")
_SPLIT_NAMES = {"train", "test", "valid", "val", "validation"}
_IGNORED = {"thumbs.db", "desktop.ini", "__macosx"}  # created by file browsers and archivers
_GREY = {"1", "L", "LA"}
_CHUNK = 256

_CINIC_FOLDERS = ("CINIC-10", "cinic-10")
_CINIC_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CINIC_PER_CLASS = 9000


@dataclass(frozen=True)
class _Format:
    """The format that all images of a dataset must have: that of the first one; size: width, height."""

    first: Path
    size: tuple[int, int]
    mode: str

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1 if self.mode == "L" else 3, self.size[1], self.size[0])


def read_images(files: Sequence[Path], shape: tuple[int, ...], read: Callable[[Path], np.ndarray]) -> torch.Tensor:
    """Images read by several threads, in the order of the files: [N, *shape]; read: returns uint8 of `shape`."""
    out = np.empty((len(files), *shape), dtype=np.uint8)

    def fill(start: int) -> None:
        for row in range(start, min(start + _CHUNK, len(files))):
            out[row] = read(files[row])

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        # Results are taken in order, so that of several bad files the error always names the same one.
        for _ in pool.map(fill, range(0, len(files), _CHUNK)):
            pass
    return torch.from_numpy(out)


def blank_images(files: Sequence[Path], shape: tuple[int, ...], read: Callable[[Path], np.ndarray]) -> torch.Tensor:
    """Replaces `read_images` if only labels are needed: one blank pixel per row, no file is opened."""
    return torch.zeros((len(files), shape[0], *(1 for _ in shape[1:])), dtype=torch.uint8)


def image_folder(path: Path, *, test: float | None = None, seed: int = 0, read_rows: ReadRows = read_images) -> Dataset:
    """A dataset from a folder of images (see the module): uint8 [N, C, H, W], classes sorted by name.

    test, seed: fraction (0.2) and seed of the test rows, for a folder without `train` and `test`. read_rows: how files
    become rows, `read_images` or `blank_images`.
    """
    name = path.resolve().name
    subfolders = {entry.name for entry in _list_folder(path) if entry.is_dir()}
    if {"train", "test"} <= subfolders:
        if test is not None:
            raise UserError(
                f"{path}: expected either the folders train and test or a test fraction, found both ({test}); "
                "leave the fraction out to use the folders"
            )
        return _dataset(name, *_list_train_and_test(path), read_rows)
    if subfolders & {"train", "test"} and subfolders <= _SPLIT_NAMES:
        raise UserError(
            f"{path}: expected the folders train and test, found only {', '.join(sorted(subfolders))}; "
            "rename the folder of the test images to test"
        )
    images = _list_classes(path, allow_empty=False)
    return split_rows(name, _rows(images, _format(images), read_rows), tuple(images), None, test, seed)


def cinic10(root: Path, *, verify: bool = True, read_rows: ReadRows = read_images) -> Dataset:
    """CINIC-10 from `CINIC-10` or `cinic-10` under root: uint8 [N, 3, 32, 32], 10 classes; `valid` is not read."""
    choices = [[root / folder / split for split in ("train", "test")] for folder in _CINIC_FOLDERS]
    for pair in choices:
        if all(path.is_dir() for path in pair):
            train, test = _list_train_and_test(pair[0].parent)
            _check_cinic(pair[0].parent, train, test, verify)
            mean, std = (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)
            # Some of its images are greyscale, so the first one must not decide the mode.
            return _dataset("cinic10", train, test, read_rows, "RGB", mean, std)
    raise missing_files_error("cinic10", root, [[path for path in pair if not path.is_dir()] for pair in choices])


def open_image(path: Path) -> Image.Image:
    """A fully decoded image; a file that is truncated or neither PNG nor JPEG is refused."""
    data = read_checked(path)
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        image.load()
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, Image.DecompressionBombError) as error:
        problem = "another kind of file" if isinstance(error, UnidentifiedImageError) else str(error)
        raise UserError(
            f"{path}: expected a complete PNG or JPEG image, found: {problem}; replace the file or delete it"
        ) from error
    return image


def _dataset(
    name: str,
    train: ImagesByClass,
    test: ImagesByClass,
    read_rows: ReadRows,
    mode: str | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> Dataset:
    expected = _format(train, mode)
    return Dataset(name, _rows(train, expected, read_rows), _rows(test, expected, read_rows), tuple(train), mean, std)


def _list_train_and_test(path: Path) -> tuple[ImagesByClass, ImagesByClass]:
    """The images of `train` and `test`, which must have the same classes."""
    train, test = _list_classes(path / "train", allow_empty=False), _list_classes(path / "test", allow_empty=True)
    for split, other, absent in (("train", "test", test.keys() - train), ("test", "train", train.keys() - test)):
        if absent:
            raise UserError(
                f"{path / split}: expected the same class folders as in {other}, found no {', '.join(sorted(absent))}; "
                "add the folder (in test it may be empty), or delete it from the other one"
            )
    return train, test


def _list_classes(folder: Path, allow_empty: bool) -> ImagesByClass:
    """Images by class; without `allow_empty`, a class without images is refused."""
    classes = {}
    for entry in _list_folder(folder):
        if entry.is_dir():
            classes[entry.name] = _list_images(Path(entry.path))
        elif entry.name.lower().endswith(_ENDINGS):
            raise UserError(f"{entry.path}: expected images in class folders only, found one outside; move it into one")
    if not classes:
        raise UserError(f"{folder}: expected one folder per class with images in it, found no folder")
    empty = [name for name, images in classes.items() if not images]
    if empty and not allow_empty:
        raise UserError(
            f"{folder / empty[0]}: expected images ({', '.join(_ENDINGS)}) in every class folder, found none; "
            "delete the folder or add images"
        )
    return classes


def _list_images(folder: Path) -> list[Path]:
    """The images of one class, sorted; anything else is refused, because ignoring it would silently lose images."""
    files = []
    for entry in _list_folder(folder):
        if entry.is_dir() or not entry.name.lower().endswith(_ENDINGS):
            problem = "a folder; move its images up" if entry.is_dir() else "another kind of file; convert or remove it"
            raise UserError(
                f"{entry.path}: expected only images ({', '.join(_ENDINGS)}) in the class folder {folder.name}, "
                f"found {problem}"
            )
        files.append(folder / entry.name)
    return files


def _list_folder(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted by name, without hidden and ignored files."""
    with os.scandir(folder) as entries:
        kept = [entry for entry in entries if entry.name[0] != "." and entry.name.lower() not in _IGNORED]
    return sorted(kept, key=lambda entry: entry.name)


def _format(classes: ImagesByClass, mode: str | None = None) -> _Format:
    first = next(iter(classes.values()))[0]
    image = open_image(first)
    return _Format(first, image.size, mode or ("L" if image.mode in _GREY else "RGB"))


def _rows(classes: ImagesByClass, expected: _Format, read_rows: ReadRows) -> Split:
    files = [file for images in classes.values() for file in images]
    y = np.repeat(np.arange(len(classes)), [len(images) for images in classes.values()])
    return Split(read_rows(files, expected.shape, partial(_pixels, expected=expected)), torch.from_numpy(y))


def _pixels(path: Path, expected: _Format) -> np.ndarray:
    """One image as uint8 [C, H, W]."""
    image = open_image(path)
    if image.size != expected.size:
        raise UserError(
            f"{path}: expected {expected.size[0]} x {expected.size[1]} pixels like {expected.first}, "
            f"found {image.size[0]} x {image.size[1]}; resize all images to one size first"
        )
    if image.mode[0] in "IF":
        raise UserError(f"{path}: expected 8 bits per channel, found mode {image.mode}; convert the image first")
    if expected.mode == "L" and image.mode not in _GREY:
        raise UserError(
            f"{path}: expected a greyscale image like {expected.first}, found a colour image ({image.mode}); "
            "convert all images to greyscale or all to colour first"
        )
    return np.asarray(image.convert(expected.mode)).reshape(*expected.shape[1:], -1).transpose(2, 0, 1)


def _check_cinic(path: Path, train: ImagesByClass, test: ImagesByClass, verify: bool) -> None:
    if tuple(train) != _CINIC_CLASSES:
        raise UserError(
            f"{path / 'train'}: expected the class folders {', '.join(_CINIC_CLASSES)}, found {', '.join(train)}; "
            "unpack the official archive again"
        )
    for split, classes in (("train", train), ("test", test)):
        for name, images in classes.items():
            if verify and len(images) != _CINIC_PER_CLASS:
                raise UserError(
                    f"{path / split / name}: expected {_CINIC_PER_CLASS} images, found {len(images)}; "
                    "the archive was altered or not unpacked completely; unpack it again"
                )
