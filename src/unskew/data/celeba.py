"""CelebA: aligned faces, one of the 40 attributes as the label, and the person as the group.

celeba/img_align_celeba/*.jpg       202,599 faces of 178 x 218
celeba/list_attr_celeba.txt         a count, the attribute names, then per image its name and -1 or 1 for each attribute
celeba/identity_CelebA.txt          name and person of each image
celeba/list_eval_partition.txt      name and split of each image: 0 train, 1 validation (not read), 2 test

The attribute follows the dataset name after a colon, as in `celeba:Male`; `celeba` means `celeba:Smiling`.
"""

from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image

from unskew.base.errors import UserError, expected_one_of
from unskew.data.checked_files import missing_files_error, read_checked
from unskew.data.dataset import Dataset, Split
from unskew.data.image_folders import ReadRows, open_image, read_images

Column: TypeAlias = dict[str, int]  # one number per image, by file name

_IMAGES, _ATTRIBUTES = "img_align_celeba", "list_attr_celeba.txt"
_IDENTITY, _PARTITION = "identity_CelebA.txt", "list_eval_partition.txt"
_WIDTH, _HEIGHT = 178, 218
_TOP = (_HEIGHT - _WIDTH) // 2
_MD5 = {
    _ATTRIBUTES: "75e246fa4810816ffd6ee81facbd244c",
    _IDENTITY: "32bd1bd63d3c78cd57e08160ec5ed1e2",
    _PARTITION: "d32c9cbf5e040fd4025c592c306e6668",
}


def celeba(
    root: Path, attribute: str = "Smiling", *, size: int = 64, verify: bool = True, read_rows: ReadRows = read_images
) -> Dataset:
    """CelebA from `celeba` under root: uint8 [N, 3, size, size], label 1 if a face has the attribute, else 0.

    The 178 x 178 centre square of each 178 x 218 image is resized (bilinear, antialiased) to `size`.
    """
    if not 1 <= size <= _WIDTH:
        raise UserError(f"celeba: expected a size from 1 to {_WIDTH}, found {size}; try 64")
    folder = root / "celeba"
    lines = _read_lists(root, folder, verify)
    labels = _attribute(folder / _ATTRIBUTES, lines[_ATTRIBUTES], attribute)
    people = _column(folder / _IDENTITY, lines[_IDENTITY])
    splits = _column(folder / _PARTITION, lines[_PARTITION], (0, 1, 2))
    _check_same_images(folder, {_PARTITION: splits, _ATTRIBUTES: labels, _IDENTITY: people})
    train, test = (
        _split(folder / _IMAGES, [name for name, s in splits.items() if s == split], labels, people, size, read_rows)
        for split in (0, 2)
    )
    return Dataset(f"celeba:{attribute}", train, test, (f"not {attribute}", attribute))


def _read_lists(root: Path, folder: Path, verify: bool) -> dict[str, list[str]]:
    """The lines of the three lists, by file name."""
    absent = [folder / name for name in _MD5 if not (folder / name).is_file()]
    if not (folder / _IMAGES).is_dir():
        absent.append(folder / _IMAGES)
    if absent:
        raise missing_files_error("celeba", root, [absent])
    content = {name: read_checked(folder / name, md5=md5, verify=verify) for name, md5 in _MD5.items()}
    return {name: data.decode("latin-1").splitlines() for name, data in content.items()}


def _attribute(path: Path, lines: list[str], attribute: str) -> Column:
    """The values of one attribute; lines: a count and the names, then one per image."""
    count, names, rows = lines[0].strip() if lines else "", lines[1].split() if len(lines) > 1 else [], lines[2:]
    if count != str(len(rows)):
        raise UserError(
            f"{path}: expected the number of images in its first line ({count or 'nothing'}), found {len(rows)}; "
            "the file is truncated or altered; download it again"
        )
    if attribute not in names:
        raise UserError(f"celeba: {expected_one_of(names, attribute, 'one of the attributes')}")
    return _column(path, rows, (-1, 1), names.index(attribute) + 1, len(names) + 1, skipped=2)


def _column(
    path: Path,
    lines: list[str],
    allowed: tuple[int, ...] | None = None,
    index: int = 1,
    words: int = 2,
    skipped: int = 0,
) -> Column:
    """Word `index` of each line by its first word; a line with another number of words or another value is refused."""
    column: Column = {}
    texts = None if allowed is None else {str(value) for value in allowed}
    for number, line in enumerate(lines, start=skipped + 1):
        fields = line.split()
        if len(fields) != words or not (fields[index].isdecimal() if texts is None else fields[index] in texts):
            values = "a number" if allowed is None else " or ".join(map(str, allowed))
            raise UserError(
                f"{path}: expected {words} words per line with {values} as word {index + 1}, "
                f"found {line.strip()[:60]!r} in line {number}; download the file again"
            )
        if fields[0] in column:
            raise UserError(f"{path}: expected every image once, found {fields[0]} again in line {number}; remove it")
        column[fields[0]] = int(fields[index])
    return column


def _check_same_images(folder: Path, columns: dict[str, Column]) -> None:
    """Refuse lists that do not name the same images."""
    every: set[str] = set().union(*columns.values())
    for file, column in columns.items():
        absent = sorted(every - column.keys())
        if absent:
            raise UserError(
                f"{folder / file}: expected a line for {absent[0]}, which another list contains, found none "
                f"({len(absent)} images have no line); the file is truncated or altered; download it again"
            )


def _split(images: Path, names: list[str], labels: Column, people: Column, size: int, read_rows: ReadRows) -> Split:
    x = read_rows([images / name for name in names], (3, size, size), partial(_face, size=size))
    y = np.array([labels[name] == 1 for name in names], dtype=np.int64)
    return Split(x, torch.from_numpy(y), np.array([people[name] for name in names], dtype=np.int64))


def _face(path: Path, size: int) -> np.ndarray:
    """The centre square of one image as uint8 [3, size, size]."""
    image = open_image(path)
    if image.size != (_WIDTH, _HEIGHT):
        raise UserError(
            f"{path}: expected {_WIDTH} x {_HEIGHT} pixels, found {image.size[0]} x {image.size[1]}; "
            f"unpack the aligned images ({_IMAGES}.zip) again"
        )
    square = image.convert("RGB").crop((0, _TOP, _WIDTH, _TOP + _WIDTH))
    if size != _WIDTH:
        square = square.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(square).transpose(2, 0, 1)
