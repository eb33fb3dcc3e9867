"""Small folders of images: with and without a split, greyscale or colour, and errors that name the file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unskew.base.errors import UserError
from unskew.data import load
from unskew.data.image_folders import image_folder

CINIC = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def picture(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_classes(root: Path, *shape: int, classes: tuple[str, ...] = ("cat", "dog"), rows: int = 3) -> None:
    """`rows` images per class as 0.png, 1.png, ...; image i of class c has seed 10 c + i."""
    for c, name in enumerate(classes):
        for i in range(rows):
            save(root / name / f"{i}.png", picture(10 * c + i, *shape))


def write_splits(root: Path, *shape: int, classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    for part, rows in (("train", 3), ("valid", 1), ("test", 2)):
        write_classes(root / part, *shape, classes=classes, rows=rows)
    return root


@pytest.mark.parametrize(("stored", "row"), [((4, 5, 3), (3, 4, 5)), ((4, 5), (1, 4, 5)), ((4, 5, 4), (3, 4, 5))])
def test_split_folders_give_the_splits(tmp_path: Path, stored: tuple[int, ...], row: tuple[int, ...]) -> None:
    data = image_folder(write_splits(tmp_path / "pets", *stored))
    assert (data.name, data.shape, data.classes, data.train.x.dtype) == ("pets", row, ("cat", "dog"), torch.uint8)
    assert data.train.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.y.tolist() == [0, 0, 1, 1]
    expected = picture(11, *stored).reshape(4, 5, -1).transpose(2, 0, 1)[: row[0]]
    assert np.array_equal(data.train.x[4].numpy(), expected)


def test_images_are_ordered_by_name_across_chunks(tmp_path: Path) -> None:
    names = [f"{i:04}" for i in range(600)]
    for i, name in enumerate(names):
        save(tmp_path / "train" / "a" / f"{name}.png", np.full((1, 2), i % 256, np.uint8))
    write_classes(tmp_path / "test", 1, 2, classes=("a",))
    assert image_folder(tmp_path).train.x[:, 0, 0, 0].tolist() == [i % 256 for i in range(600)]


def test_unsplit_folder_is_split_by_class(tmp_path: Path) -> None:
    write_classes(tmp_path, 2, 2, rows=10)
    data, again, other = (image_folder(tmp_path, test=0.3, seed=seed) for seed in (1, 1, 2))
    assert torch.bincount(data.test.y).tolist() == [3, 3]
    assert torch.equal(data.test.x, again.test.x)
    assert not torch.equal(data.test.x, other.test.x)
    assert len(image_folder(tmp_path).test) == 4


def test_jpeg_is_read_and_system_files_are_ignored(tmp_path: Path) -> None:
    write_splits(tmp_path, 8, 8, 3)
    save(tmp_path / "train" / "cat" / "9.JPG", np.full((8, 8, 3), 77, np.uint8))
    for ignored in ("README.md", "train/.DS_Store", "train/cat/Thumbs.db", "train/cat/._0.png"):
        (tmp_path / ignored).write_bytes(b"x")
    data = image_folder(tmp_path)
    assert len(data.train) == 7
    assert (data.train.x[3].int() - 77).abs().max() <= 1


def test_greyscale_images_among_colour_become_colour(tmp_path: Path) -> None:
    write_splits(tmp_path, 4, 5, 3)
    save(tmp_path / "train" / "dog" / "grey.png", picture(0, 4, 5))
    row = image_folder(tmp_path).train.x[-1].numpy()
    assert np.array_equal(row, np.stack([picture(0, 4, 5)] * 3))


def test_folders_are_loaded_by_path_and_by_name(tmp_path: Path) -> None:
    write_splits(tmp_path / "pets", 2, 2)
    for name in ("pets", str(tmp_path / "pets")):
        assert load(name, tmp_path).name == "pets"
    with pytest.raises(
        UserError,
        match=r"found 'pest'; expected .* of a folder of images.* neither pest\.npz nor a folder pest; .*UNSKEW_DATA",
    ):
        load("pest", tmp_path)
    with pytest.raises(UserError, match="found ''; expected hf:NAME"):
        load("", tmp_path)


def empty_a_class(root: Path) -> None:
    for file in (root / "train" / "dog").iterdir():
        file.unlink()


def add_a_test_class(root: Path) -> None:
    write_classes(root / "test", 4, 5, classes=("owl",))


def rename_test(root: Path) -> None:
    (root / "test").rename(root / "val")


def nest_a_folder(root: Path) -> None:
    save(root / "train" / "dog" / "images" / "0.png", picture(0, 4, 5))


def move_folders_out(root: Path) -> None:
    for part in ("train", "test", "valid"):
        (root / part).rename(root.parent / part)


Spoil = Callable[[Path], None]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (empty_a_class, r"train/dog: expected images \(.png, .jpg, .jpeg\) in every class folder, found none"),
        (add_a_test_class, "train: expected the same class folders as in test, found no owl"),
        (rename_test, "expected the folders train and test, found only train, val"),
        (nest_a_folder, "train/dog/images: expected only images .*found a folder"),
        (move_folders_out, "pets: expected one folder per class"),
        (lambda root: (root / "train" / "dog" / "a.gif").write_bytes(b"GIF"), "a.gif: expected only images"),
        (lambda root: save(root / "train" / "9.png", picture(0, 4, 5)), "9.png: expected images in class folders only"),
        (
            lambda root: save(root / "test" / "dog" / "9.png", picture(0, 5, 4)),
            r"test/dog/9.png: expected 5 x 4 pixels like .*train/cat/0.png, found 4 x 5",
        ),
        (
            lambda root: save(root / "train" / "dog" / "9.png", picture(0, 4, 5, 3)),
            r"dog/9.png: expected a greyscale image like .*cat/0.png, found a colour image \(RGB\)",
        ),
        (
            lambda root: save(root / "train" / "dog" / "9.png", picture(0, 4, 5).astype(np.uint16)),
            "dog/9.png: expected 8 bits per channel",
        ),
    ],
)
def test_bad_folders_are_refused(tmp_path: Path, spoil: Spoil, message: str) -> None:
    root = write_splits(tmp_path / "pets", 4, 5)
    spoil(root)
    with pytest.raises(UserError, match=message):
        image_folder(root)


def test_missing_class_in_test_is_refused(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 2, 2)
    write_classes(tmp_path / "test", 2, 2, classes=("cat",))
    with pytest.raises(UserError, match="test: expected the same class folders as in train, found no dog"):
        image_folder(tmp_path)
    (tmp_path / "test" / "dog").mkdir()
    assert image_folder(tmp_path).test.y.tolist() == [0, 0, 0]


def test_fraction_with_split_folders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pets: expected either the folders train and test .*found both \(0.5\)"):
        image_folder(write_splits(tmp_path / "pets", 2, 2), test=0.5)


@pytest.mark.parametrize("ending", ["png", "jpg"])
@pytest.mark.parametrize("keep", [0, 10, 60, 300])
@pytest.mark.parametrize("place", ["train/cat/0", "test/dog/9"])
def test_truncated_images_are_refused_by_name(tmp_path: Path, ending: str, keep: int, place: str) -> None:
    write_splits(tmp_path, 20, 20, 3)
    (tmp_path / f"{place}.png").unlink(missing_ok=True)
    path = tmp_path / f"{place}.{ending}"
    save(path, picture(0, 20, 20, 3))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=rf"{place}\.{ending}: expected a complete PNG or JPEG image, found: (?!.*0x)"):
        image_folder(tmp_path)


def test_altered_png_is_refused(tmp_path: Path) -> None:
    write_splits(tmp_path, 20, 20, 3)
    path = tmp_path / "test" / "dog" / "1.png"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"test/dog/1\.png: expected a complete"):
        image_folder(tmp_path)


@pytest.mark.parametrize("folder", ["CINIC-10", "cinic-10"])
def test_cinic10_is_read_as_colour_images(tmp_path: Path, folder: str) -> None:
    write_splits(tmp_path / folder, 32, 32, 3, classes=CINIC)
    save(tmp_path / folder / "train" / "airplane" / "0.png", picture(0, 32, 32))  # greyscale, and the first image
    data = load("cinic10", tmp_path, verify=False)
    assert (data.name, data.shape, data.classes) == ("cinic10", (3, 32, 32), CINIC)
    assert (len(data.train), len(data.test), data.validation) == (30, 20, None)
    assert data.mean == (0.47889522, 0.47227842, 0.43047404)
    assert data.std == (0.24205776, 0.23828046, 0.25874835)


def test_cinic10_checks_the_number_of_images(tmp_path: Path) -> None:
    write_splits(tmp_path / "CINIC-10", 32, 32, 3, classes=CINIC)
    with pytest.raises(UserError, match="train/airplane: expected 9000 images, found 3"):
        load("cinic10", tmp_path)
    with pytest.raises(UserError, match="cinic10: expected no test fraction"):
        load("cinic10", tmp_path, test=0.1)


def test_cinic10_with_other_classes_or_missing_parts_is_refused(tmp_path: Path) -> None:
    write_classes(tmp_path / "CINIC-10" / "train", 2, 2)
    with pytest.raises(UserError, match=r"(?s)CINIC-10: test\n  cinic-10: train, test\n.*UNSKEW_DATA"):
        load("cinic10", tmp_path)
    write_classes(tmp_path / "CINIC-10" / "test", 2, 2)
    with pytest.raises(UserError, match=r"CINIC-10/train: expected the class folders airplane, .*found cat, dog"):
        load("cinic10", tmp_path)
