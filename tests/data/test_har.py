"""UCI-HAR and HAPT in small folders in the official layout, and the real HAPT windows if UNSKEW_DATA has them."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from unskew.base.errors import UserError
from unskew.data import load
from unskew.data.har import ucihar

ALL = ("body_acc", "body_gyro", "total_acc")
NAMES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")
ROWS = {"train": 8, "test": 7}


def signal(kind: str, axis: str, part: str) -> np.ndarray:
    seed = 10 * ALL.index(kind) + "xyz".index(axis) + (100 if part == "test" else 0)
    return np.random.default_rng(seed).normal(size=(ROWS[part], 128)).astype(np.float32)


def write_dataset(folder: Path, kinds: tuple[str, ...] = ALL) -> Path:
    """The files in the format of the archive: numbers in scientific notation after two blanks."""
    folder.mkdir(parents=True)
    (folder / "activity_labels.txt").write_text("".join(f"{i + 1} {name}\n" for i, name in enumerate(NAMES)))
    for part, rows in ROWS.items():
        signals = folder / part / "Inertial Signals"
        signals.mkdir(parents=True)
        np.savetxt(folder / part / f"y_{part}.txt", np.arange(rows) % 6 + 1, fmt="%d")
        np.savetxt(folder / part / f"subject_{part}.txt", np.arange(rows) // 3 + 1, fmt="%d")
        for kind in kinds:
            for axis in "xyz":
                lines = ["".join(f"  {v:.9e}" for v in row) for row in signal(kind, axis, part)]
                (signals / f"{kind}_{axis}_{part}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("folder", ["UCI HAR Dataset", "UCI-HAR"])
def test_ucihar_is_read_from_its_official_layout(tmp_path: Path, folder: str) -> None:
    write_dataset(tmp_path / folder)
    data = load("ucihar", tmp_path, verify=False)
    assert (data.name, data.shape, data.classes) == ("ucihar:body_acc", (1, 128, 3), NAMES)
    assert data.train.x.dtype == torch.float32
    expected = np.stack([signal("body_acc", axis, "train") for axis in "xyz"], axis=-1)
    assert np.array_equal(data.train.x[:, 0].numpy(), expected)
    assert data.train.y.tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert data.test.group is not None
    assert data.test.group.tolist() == [1, 1, 1, 2, 2, 2, 3]
    assert (data.mean, data.std) == (None, None)


def test_channels_are_chosen_in_order(tmp_path: Path) -> None:
    write_dataset(tmp_path / "UCI-HAR")
    data = load("ucihar:total_acc+body_gyro_y", tmp_path, verify=False)
    assert (data.name, data.shape) == ("ucihar:total_acc+body_gyro_y", (1, 128, 4))
    assert np.array_equal(data.test.x[:, 0, :, 2].numpy(), signal("total_acc", "z", "test"))
    assert np.array_equal(data.test.x[:, 0, :, 3].numpy(), signal("body_gyro", "y", "test"))
    assert ucihar(tmp_path, ("body_acc_x",), verify=False).shape == (1, 128, 1)


def test_hapt_has_two_signals(tmp_path: Path) -> None:
    write_dataset(tmp_path / "hapt", ("total_acc", "body_gyro"))
    assert np.array_equal(load("hapt", tmp_path).train.x[:, 0, :, 0].numpy(), signal("total_acc", "x", "train"))
    assert load("hapt:body_gyro", tmp_path).shape == (1, 128, 3)
    with pytest.raises(UserError, match=r"hapt: expected channels body_gyro, total_acc \(.*found body_acc"):
        load("hapt:body_acc", tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ucihar:totl_acc", "found totl_acc; did you mean total_acc"),
        ("ucihar:body_acc_w", "found body_acc_w; did you mean body_acc"),
        ("ucihar:", "expected channels body_acc, body_gyro, total_acc .*found nothing"),
        ("ucihar:body_acc+body_acc_x", "expected every channel once"),
    ],
)
def test_unknown_channels_are_refused(tmp_path: Path, name: str, message: str) -> None:
    write_dataset(tmp_path / "UCI-HAR")
    with pytest.raises(UserError, match=f"ucihar: .*{message}"):
        load(name, tmp_path, verify=False)


def test_option_after_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"found 'mnist:body_acc'; expected hf:NAME"):
        load("mnist:body_acc", tmp_path)


def test_number_of_rows_is_checked(tmp_path: Path) -> None:
    write_dataset(tmp_path / "UCI-HAR")
    with pytest.raises(UserError, match="ucihar, train split: expected the official 7352 rows, found 8"):
        load("ucihar", tmp_path)
    with pytest.raises(UserError, match="ucihar:body_gyro: expected no test fraction"):
        load("ucihar:body_gyro", tmp_path, test=0.2)


@pytest.mark.parametrize(
    "file",
    [
        "activity_labels.txt",
        "train/y_train.txt",
        "test/subject_test.txt",
        "train/Inertial Signals/total_acc_x_train.txt",
        "test/Inertial Signals/total_acc_z_test.txt",
    ],
)
def test_missing_files_are_listed(tmp_path: Path, file: str) -> None:
    path = write_dataset(tmp_path / "hapt") / file
    path.unlink()
    with pytest.raises(UserError, match=rf"(?s)hapt: expected its files.*\n  hapt: {path.name}\n.*UNSKEW_DATA"):
        load("hapt", tmp_path)


X = "train/Inertial Signals/total_acc_y_train.txt"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (X, "1 2 3\n" * 8, "expected 8 rows as in y_train.txt of 128 numbers, found 8 rows of 3"),
        (X, ("1 " * 128 + "\n") * 7, "expected 8 rows as in y_train.txt of 128 numbers, found 7 rows of 128"),
        (X, ("1 " * 128 + "\n") * 7 + "1 2 3", "expected 128 finite numbers per row, found fewer in row 7"),
        (X, "1 " * 128 + "\n" + "1 " * 129, "expected 128 numbers per row, found: .*129"),
        (X, ("1 " * 127 + "one\n") * 8, "expected 128 numbers per row, found: .*one"),
        (X, ("1 " * 127 + "inf\n") * 8, "expected 128 finite numbers per row, found fewer in row 0"),
        (X, "", "expected 128 numbers per row, found: No columns"),
        ("train/y_train.txt", "1\n2\n7\n", "expected labels from 1 to 6, found 7 in row 2"),
        ("train/y_train.txt", "0\n", "expected labels from 1 to 6, found 0 in row 0"),
        ("train/y_train.txt", "1\nsix\n", "expected one integer per line, found: .*six"),
        ("train/y_train.txt", f"{10**30}\n", "expected one integer per line"),
        ("train/subject_train.txt", "1\n" * 7, "expected 8 rows as in y_train.txt, found 7"),
        ("activity_labels.txt", "1 WALKING\n2 SITTING\n", "expected 6 lines.*found 2 lines with the numbers 1, 2"),
        ("activity_labels.txt", "WALKING\n" * 6, r"expected 6 lines.*found 6 lines with the numbers \(none\)"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, file: str, content: str, message: str) -> None:
    path = write_dataset(tmp_path / "hapt") / file
    path.write_text(content)
    with pytest.raises(UserError, match=f"{path.name}: {message}"):
        load("hapt", tmp_path)


def test_real_hapt_has_its_official_size() -> None:
    root = os.environ.get("UNSKEW_DATA")
    if not root or not (Path(root) / "hapt").is_dir():
        pytest.skip("the folder in UNSKEW_DATA does not contain hapt")
    data = load("hapt", root)
    assert (len(data.train), len(data.test), data.shape) == (7415, 2996, (1, 128, 3))
    assert data.train.group is not None
    assert data.test.group is not None
    assert (len(set(data.train.group)), len(set(data.test.group))) == (21, 9)
    assert not set(data.train.group) & set(data.test.group)
