"""Images in one folder per class: any such folder by its path, and CINIC-10 by its name.

ROOT/train/CLASS/*.png and ROOT/test/CLASS/*.png    rows as split there; `valid` beside them is not read
ROOT/CLASS/*.png                                    test rows by a stratified fraction

Files are PNG or JPEG; hidden files are passed over, anything else among the images is refused. All images must have one
size: none is resized. The first training image decides between grey (one channel) and colour (three): grey images among
colour ones are stored as colour, colour images among grey ones are refused, and transparency is dropped.
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
from unskew.data.checked_files import missing, read_checked
from unskew.data.dataset import Dataset, Split

Tree: TypeAlias = dict[str, list[Path]]  # images by class, both sorted
Gather: TypeAlias = Callable[[Sequence[Path], tuple[int, ...], Callable[[Path], np.ndarray]], torch.Tensor]

_ENDINGS = (".png", ".jpg", ".jpeg")
_PARTS = {"train", "test", "valid", "val", "validation"}
_LITTER = {"thumbs.db", "desktop.ini", "__macosx"}  # what file browsers and archivers leave behind
_GREY = {"1", "L", "LA"}
_CHUNK = 256

_CINIC_FOLDERS = ("CINIC-10", "cinic-10")
_CINIC_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CINIC_PER_CLASS = 9000


@dataclass(frozen=True)
class _Format:
    """What all images of a dataset share, as the first of them has it; size: width, height."""

    first: Path
    size: tuple[int, int]
    mode: str

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1 if self.mode == "L" else 3, self.size[1], self.size[0])


def stack(files: Sequence[Path], shape: tuple[int, ...], read: Callable[[Path], np.ndarray]) -> torch.Tensor:
    """Images read by several threads, in the order of the files; read: gives uint8 of `shape`, returns [N, *shape]."""
    out = np.empty((len(files), *shape), dtype=np.uint8)

    def fill(start: int) -> None:
        for row in range(start, min(start + _CHUNK, len(files))):
            out[row] = read(files[row])

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        # Drained in order, so that of several bad files the same one is always named.
        for _ in pool.map(fill, range(0, len(files), _CHUNK)):
            pass
    return torch.from_numpy(out)


def unread(files: Sequence[Path], shape: tuple[int, ...], read: Callable[[Path], np.ndarray]) -> torch.Tensor:
    """In place of `stack` for those who need labels only: a blank pixel a row, and no file is opened."""
    return torch.zeros((len(files), shape[0], *(1 for _ in shape[1:])), dtype=torch.uint8)


def image_folder(path: Path, *, test: float | None = None, seed: int = 0, gather: Gather = stack) -> Dataset:
    """A dataset from a folder of images (see the module): uint8 [N, C, H, W], classes in the order of their names.

    test, seed: fraction (0.2) and seed of the test rows, for a folder without `train` and `test` in it. gather: how the
    files become rows, `stack` or `unread`.
    """
    name = path.resolve().name
    inside = {entry.name for entry in _entries(path) if entry.is_dir()}
    if {"train", "test"} <= inside:
        if test is not None:
            raise UserError(
                f"{path}: expected either the folders train and test or a test fraction, found both ({test}); "
                "leave the fraction out to use the folders"
            )
        return _dataset(name, *_trees(path), gather)
    if inside & {"train", "test"} and inside <= _PARTS:
        raise UserError(
            f"{path}: expected the folders train and test, found only {', '.join(sorted(inside))}; "
            "rename the folder of the test images to test"
        )
    tree = _tree(path, every=True)
    return split_rows(name, _rows(tree, _format(tree), gather), tuple(tree), None, test, seed)


def cinic10(root: Path, *, verify: bool = True, gather: Gather = stack) -> Dataset:
    """CINIC-10 from `CINIC-10` or `cinic-10` under root: uint8 [N, 3, 32, 32], 10 classes; `valid` is not read."""
    parts = [[root / folder / part for part in ("train", "test")] for folder in _CINIC_FOLDERS]
    for pair in parts:
        if all(part.is_dir() for part in pair):
            train, test = _trees(pair[0].parent)
            _check_cinic(pair[0].parent, train, test, verify)
            mean, std = (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)
            # Some of its images are grey, so the first one may not decide.
            return _dataset("cinic10", train, test, gather, "RGB", mean, std)
    raise missing("cinic10", root, [[part for part in pair if not part.is_dir()] for pair in parts])


def open_image(path: Path) -> Image.Image:
    """An image decoded in full; a file that is truncated or no PNG or JPEG is refused by its name."""
    data = read_checked(path)
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        image.load()
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, Image.DecompressionBombError) as error:
        found = "another kind of file" if isinstance(error, UnidentifiedImageError) else str(error)
        raise UserError(
            f"{path}: expected a complete PNG or JPEG image, found: {found}; replace the file or delete it"
        ) from error
    return image


def _dataset(
    name: str,
    train: Tree,
    test: Tree,
    gather: Gather,
    mode: str | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> Dataset:
    form = _format(train, mode)
    return Dataset(name, _rows(train, form, gather), _rows(test, form, gather), tuple(train), mean, std)


def _trees(path: Path) -> tuple[Tree, Tree]:
    """The images of `train` and `test`, which must have the same classes."""
    train, test = _tree(path / "train", every=True), _tree(path / "test", every=False)
    for part, other, absent in (("train", "test", test.keys() - train), ("test", "train", train.keys() - test)):
        if absent:
            raise UserError(
                f"{path / part}: expected the same class folders as in {other}, found no {', '.join(sorted(absent))}; "
                "add the folder (it may be empty in test only), or delete it from the other part"
            )
    return train, test


def _tree(folder: Path, every: bool) -> Tree:
    """Images by class; every: refuse a class without images."""
    tree = {}
    for entry in _entries(folder):
        if entry.is_dir():
            tree[entry.name] = _images(Path(entry.path))
        elif entry.name.lower().endswith(_ENDINGS):
            raise UserError(f"{entry.path}: expected images in class folders only, found one beside them; move it")
    if not tree:
        raise UserError(f"{folder}: expected one folder per class with images in it, found no folder")
    empty = [name for name, images in tree.items() if not images]
    if empty and every:
        raise UserError(
            f"{folder / empty[0]}: expected images ({', '.join(_ENDINGS)}) in every class folder, found none; "
            "delete the folder or put images in"
        )
    return tree


def _images(folder: Path) -> list[Path]:
    """The images of one class, sorted; whatever else is there is refused, since it would be lost silently."""
    files = []
    for entry in _entries(folder):
        if entry.is_dir() or not entry.name.lower().endswith(_ENDINGS):
            found = "a folder" if entry.is_dir() else "another kind of file"
            raise UserError(
                f"{entry.path}: expected only images ({', '.join(_ENDINGS)}) in the class folder {folder.name}, "
                f"found {found}; move it elsewhere, or its images up, or convert it"
            )
        files.append(folder / entry.name)
    return files


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder, sorted by name, without hidden files and litter."""
    with os.scandir(folder) as found:
        kept = [entry for entry in found if entry.name[0] != "." and entry.name.lower() not in _LITTER]
    return sorted(kept, key=lambda entry: entry.name)


def _format(tree: Tree, mode: str | None = None) -> _Format:
    first = next(iter(tree.values()))[0]
    image = open_image(first)
    return _Format(first, image.size, mode or ("L" if image.mode in _GREY else "RGB"))


def _rows(tree: Tree, form: _Format, gather: Gather) -> Split:
    files = [file for images in tree.values() for file in images]
    y = np.repeat(np.arange(len(tree)), [len(images) for images in tree.values()])
    return Split(gather(files, form.shape, partial(_pixels, form=form)), torch.from_numpy(y))


def _pixels(path: Path, form: _Format) -> np.ndarray:
    """One image as uint8 [C, H, W]."""
    image = open_image(path)
    if image.size != form.size:
        raise UserError(
            f"{path}: expected {form.size[0]} x {form.size[1]} pixels like {form.first}, "
            f"found {image.size[0]} x {image.size[1]}; resize all images to one size first"
        )
    if image.mode[0] in "IF":
        raise UserError(f"{path}: expected 8 bits per channel, found mode {image.mode}; convert the image first")
    if form.mode == "L" and image.mode not in _GREY:
        raise UserError(
            f"{path}: expected a grey image like {form.first}, found one in colour ({image.mode}); "
            "convert all images to grey or all to colour first"
        )
    return np.asarray(image.convert(form.mode)).reshape(*form.shape[1:], -1).transpose(2, 0, 1)


def _check_cinic(path: Path, train: Tree, test: Tree, verify: bool) -> None:
    if tuple(train) != _CINIC_CLASSES:
        raise UserError(
            f"{path / 'train'}: expected the class folders {', '.join(_CINIC_CLASSES)}, found {', '.join(train)}; "
            "unpack the official archive again"
        )
    for part, tree in (("train", train), ("test", test)):
        for name, images in tree.items():
            if verify and len(images) != _CINIC_PER_CLASS:
                raise UserError(
                    f"{path / part / name}: expected {_CINIC_PER_CLASS} images, found {len(images)}; "
                    "the archive was unpacked in part or altered; unpack it again"
                )
