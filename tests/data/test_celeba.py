"""CelebA in a small folder in the official layout."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unskew.base.errors import UserError
from unskew.data import load
from unskew.data.celeba import celeba

NAMES = [f"{i + 1:06}.jpg" for i in range(8)]
ATTRIBUTES = ("5_o_Clock_Shadow", "Male", "Smiling", "Young")
PARTS = (0, 0, 0, 0, 1, 2, 2, 2)
PEOPLE = (7, 7, 3, 2880, 5, 1, 1, 9)


def value(row: int, attribute: str) -> int:
    return 1 if (row >> ATTRIBUTES.index(attribute)) & 1 else -1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight images with a vertical grey ramp, which reveals the crop; each is brighter than the one before."""
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    for i, name in enumerate(NAMES):
        ramp = np.broadcast_to(np.arange(218)[:, None, None] // 2 + 10 * i, (218, 178, 3)).astype(np.uint8)
        Image.fromarray(ramp).save(folder / "img_align_celeba" / name, quality=95)
    rows = [f"{n} " + "".join(f"{value(i, a):3}" for a in ATTRIBUTES) for i, n in enumerate(NAMES)]
    (folder / "list_attr_celeba.txt").write_text("\n".join(["8", " ".join(ATTRIBUTES) + " ", *rows]) + "\n")
    for file, column in (("identity_CelebA.txt", PEOPLE), ("list_eval_partition.txt", PARTS)):
        (folder / file).write_text("".join(f"{n} {v}\n" for n, v in zip(NAMES, column)))
    return folder


def test_smiling_is_the_default_label(folder: Path) -> None:
    data = load("celeba", folder.parent, verify=False)
    assert (data.name, data.shape, data.classes) == ("celeba:Smiling", (3, 64, 64), ("not Smiling", "Smiling"))
    assert data.train.x.dtype == torch.uint8
    assert data.train.y.tolist() == [0, 0, 0, 0]
    assert data.test.y.tolist() == [1, 1, 1]
    assert data.train.group is not None
    assert data.train.group.tolist() == [7, 7, 3, 2880]
    assert data.test.group is not None
    assert data.test.group.tolist() == [1, 1, 9]


def test_the_attribute_after_the_colon_is_the_label(folder: Path) -> None:
    data = load("celeba:Male", folder.parent, verify=False)
    assert (data.name, data.classes) == ("celeba:Male", ("not Male", "Male"))
    assert data.train.y.tolist() == [0, 0, 1, 1]


def test_the_centre_square_is_resized(folder: Path) -> None:
    full = celeba(folder.parent, size=178, verify=False)
    expected = torch.arange(20, 198) // 2 + 10
    assert (full.train.x[1, 0, :, 90].int() - expected).abs().max() <= 2
    small = celeba(folder.parent, size=2, verify=False)
    assert (small.train.x[1, 0, :, 0].int() - torch.tensor([42, 86])).abs().max() <= 4
    for size in (0, 179):
        with pytest.raises(UserError, match=f"celeba: expected a size from 1 to 178, found {size}"):
            celeba(folder.parent, size=size)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "celeba:Smilling",
            "found 'Smilling'; did you mean Smiling. Expected one of the attributes 5_o_Clock_Shadow",
        ),
        ("celeba:", "found ''; expected one of the attributes"),
    ],
)
def test_unknown_attributes_are_refused(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=f"celeba: {message}"):
        load(name, folder.parent, verify=False)


def test_checksums_are_verified(folder: Path) -> None:
    with pytest.raises(UserError, match=r"list_attr_celeba\.txt: expected md5 75e2"):
        load("celeba", folder.parent)


@pytest.mark.parametrize("file", ["list_attr_celeba.txt", "identity_CelebA.txt", "list_eval_partition.txt"])
def test_missing_lists_are_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(UserError, match=rf"(?s)celeba: expected its files.*\n  celeba: {file}\n.*UNSKEW_DATA"):
        load("celeba", folder.parent)


def test_missing_images_are_named(folder: Path) -> None:
    (folder / "img_align_celeba" / NAMES[4]).unlink()  # validation, which is not read
    load("celeba", folder.parent, verify=False)
    (folder / "img_align_celeba" / NAMES[6]).unlink()
    with pytest.raises(UserError, match=r"000007\.jpg: expected a readable file, found: No such file"):
        load("celeba", folder.parent, verify=False)
    (folder / "img_align_celeba").rename(folder / "img")
    with pytest.raises(UserError, match="celeba: img_align_celeba\n"):
        load("celeba", folder.parent)


def test_bad_images_are_named(folder: Path) -> None:
    path = folder / "img_align_celeba" / NAMES[2]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"000003\.jpg: expected a complete PNG or JPEG image"):
        load("celeba", folder.parent, verify=False)
    Image.new("RGB", (64, 64)).save(path)
    with pytest.raises(UserError, match=r"000003\.jpg: expected 178 x 218 pixels, found 64 x 64"):
        load("celeba", folder.parent, verify=False)


Edit = Callable[[list[str]], list[str]]


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [
        ("list_attr_celeba.txt", lambda lines: lines[:-1], r"the number of images in its first line \(8\), found 7"),
        ("list_attr_celeba.txt", lambda lines: [], r"the number of images in its first line \(nothing\), found 0"),
        ("list_attr_celeba.txt", lambda lines: [*lines[:-1], lines[-1][:-2]], "5 words .*in line 10"),
        ("list_attr_celeba.txt", lambda lines: [*lines[:-1], "000008.jpg 0 0 0 0"], "with -1 or 1 as word 4.*line 10"),
        ("list_attr_celeba.txt", lambda lines: ["7", *lines[1:-1]], "a line for 000008.jpg"),
        ("identity_CelebA.txt", lambda lines: lines[:-2], r"a line for 000007.jpg, .*found none \(2 images"),
        ("identity_CelebA.txt", lambda lines: ["000001.jpg x", *lines[1:]], "a number as word 2, found '000001.jpg x'"),
        ("list_eval_partition.txt", lambda lines: lines[1:], "a line for 000001.jpg"),
        ("list_eval_partition.txt", lambda lines: ["000001.jpg 3", *lines[1:]], "0 or 1 or 2 .* in line 1"),
        ("list_eval_partition.txt", lambda lines: [*lines, lines[0]], "found 000001.jpg again in line 9"),
    ],
)
def test_bad_lists_are_refused_by_name(folder: Path, file: str, edit: Edit, message: str) -> None:
    path = folder / file
    path.write_text("".join(f"{line}\n" for line in edit(path.read_text().splitlines())))
    with pytest.raises(UserError, match=rf"{file}: expected .*{message}"):
        load("celeba", folder.parent, verify=False)
