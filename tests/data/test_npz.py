"""`.npz` files and arrays in memory share one set of layout rules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unskew.base.errors import UserError
from unskew.data import from_arrays, load
from unskew.data.npz import npz

Y = np.arange(20) % 4


def save(tmp_path: Path, **arrays: Any) -> Path:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    return path


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, *shape), dtype=np.uint8)


@pytest.mark.parametrize(
    ("x", "shape", "dtype"),
    [
        (pixels(6, 5), (1, 6, 5), torch.uint8),
        (pixels(6, 5, 1), (1, 6, 5), torch.uint8),
        (pixels(6, 5, 3), (3, 6, 5), torch.uint8),
        (pixels(6, 5, 4), (4, 6, 5), torch.uint8),
        (pixels(3, 6, 5), (3, 6, 5), torch.uint8),
        (pixels(7), (7,), torch.uint8),
        (pixels(6, 5) / 255, (6, 5), torch.float32),
        (pixels(6, 5, 3).astype(np.float16), (6, 5, 3), torch.float32),
        (pixels(9).astype(np.int64), (9,), torch.float32),
    ],
)
def test_npz_and_arrays_give_the_same_layout(
    tmp_path: Path, x: np.ndarray, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    path = save(tmp_path, x=x, y=Y, extra=np.zeros(3))
    data = npz(path)
    assert (data.shape, data.train.x.dtype, data.name) == (shape, dtype, "mine")
    assert (len(data.train), len(data.test)) == (16, 4)
    same = from_arrays(torch.from_numpy(x), torch.from_numpy(Y))
    assert torch.equal(same.train.x, data.train.x)
    assert torch.equal(same.test.x, data.test.x)


def test_channels_are_moved_to_the_front() -> None:
    x = pixels(6, 5, 3)
    data = from_arrays(x, Y, x_test=x, y_test=Y)
    assert np.array_equal(data.train.x.numpy(), x.transpose(0, 3, 1, 2))
    assert float(data.prepare(data.train.x).max()) == x.max() / 255


def test_arrays_are_copied() -> None:
    x = pixels(6, 5)
    data = from_arrays(x, Y, x_test=x, y_test=Y)
    before = data.train.x.clone()
    x[:] = 0
    assert torch.equal(data.train.x, before)


IS_TEST = np.arange(20) >= 15


@pytest.mark.parametrize(
    "marks", [IS_TEST, IS_TEST.astype(np.uint8), IS_TEST.astype(float), np.where(IS_TEST, "test", "train"),
              np.where(IS_TEST, b"test", b"train")]
)  # fmt: skip
@pytest.mark.parametrize("key", ["split", "is_test"])
def test_split_array_chooses_the_test_rows(tmp_path: Path, marks: np.ndarray, key: str) -> None:
    path = save(tmp_path, x=np.arange(20.0)[:, None], y=Y, group=np.arange(20) // 2, **{key: marks})
    data = npz(path)
    assert data.test.x[:, 0].tolist() == [15, 16, 17, 18, 19]
    assert data.train.x[:, 0].tolist() == list(range(15))
    assert data.test.group is not None
    assert data.test.group.tolist() == [7, 8, 8, 9, 9]


def test_fraction_and_seed_choose_the_test_rows(tmp_path: Path) -> None:
    path = save(tmp_path, x=np.arange(20.0)[:, None], y=Y)
    half, again, other = npz(path, test=0.5, seed=3), npz(path, test=0.5, seed=3), npz(path, test=0.5, seed=4)
    assert len(half.test) == 10
    assert torch.bincount(half.test.y).max() <= 3
    assert torch.equal(half.test.x, again.test.x)
    assert not torch.equal(half.test.x, other.test.x)


def test_text_labels_are_matched_to_class_names(tmp_path: Path) -> None:
    names = np.array(["dog", "cat", "owl", "bee"])
    data = npz(save(tmp_path, x=pixels(2, 2), y=names[Y]))
    assert data.classes == ("bee", "cat", "dog", "owl")
    ordered = from_arrays(pixels(2, 2), names[Y], classes=list(names), x_test=pixels(2, 2), y_test=names[Y])
    assert ordered.train.y.tolist() == Y.tolist()


def test_class_names_are_read_from_the_file(tmp_path: Path) -> None:
    data = npz(save(tmp_path, x=pixels(2, 2), y=Y, classes=np.array(list("abcde"))))
    assert data.classes == tuple("abcde")
    assert npz(save(tmp_path, x=pixels(2, 2), y=Y)).classes == ("0", "1", "2", "3")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": pixels(2), "labels": Y}, "expected the keys x and y, found images, labels"),
        ({"x": pixels(2), "y": Y.astype(float)}, r"expected y as integers or strings, found float64; try y\.astype"),
        ({"x": pixels(2), "y": Y - 1}, "labels counted from 0 .*found -1"),
        ({"x": pixels(2), "y": Y + 1}, "expected labels 0 to .* with a row of each, found none of 0; renumber with"),
        ({"x": pixels(2), "y": 9 * Y}, "found none of 1 and .* others; renumber with"),
        ({"x": pixels(2), "y": Y * 10_000}, "found 30000"),
        ({"x": pixels(2), "y": Y[:, None]}, r"expected y of shape \[N\]"),
        ({"x": pixels(2), "y": Y[:5]}, "found 20 rows in x, 5 labels in y"),
        ({"x": pixels(2), "y": Y, "group": np.arange(3)}, r"group of shape \[3\]"),
        ({"x": pixels(2), "y": Y, "group": np.array(3)}, r"group of shape \[\]"),
        ({"x": Y, "y": Y}, r"expected x of shape \[N, ...\]"),
        ({"x": np.array([["a"]] * 20), "y": Y}, "expected x as numbers"),
        ({"x": np.full((20, 2), np.inf), "y": Y}, "expected finite numbers"),
        ({"x": np.full((20, 2), 1e300), "y": Y}, "expected finite numbers in float32"),
        ({"x": pixels(2), "y": Y, "classes": np.array(["a", "b"])}, "labels from 0 to 1"),
        ({"x": pixels(2), "y": Y.astype(str), "classes": np.array(["0", "1"])}, "found 2, 3"),
        ({"x": pixels(2), "y": Y, "split": np.arange(20)}, "expected split to contain only 0 and 1, found 2"),
        ({"x": pixels(2), "y": Y, "split": np.full(20, "val")}, "only train and test, found val"),
        ({"x": pixels(2), "y": Y, "split": np.zeros(3)}, r"expected split of shape \[20\]"),
        ({"x": pixels(2), "y": Y, "split": np.zeros(20)}, "test split: expected at least one row"),
        ({"x": np.array([{}] * 20), "y": Y}, "could not read x"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UserError, match=f"mine.*{message}"):
        npz(save(tmp_path, **arrays))


def test_fraction_with_a_split_array_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="found both"):
        load(str(save(tmp_path, x=pixels(2), y=Y, split=IS_TEST)), tmp_path, test=0.3)


@pytest.mark.parametrize("keep", [0, 10, 200, -10])
def test_truncated_or_other_files_are_refused(tmp_path: Path, keep: int) -> None:
    path = save(tmp_path, x=pixels(2, 2), y=Y)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"mine\.npz: expected"):
        npz(path)


def test_altered_content_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, x=pixels(2, 2), y=Y)
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.npz: expected plain arrays, but could not read x"):
        npz(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x_test": pixels(2)}, "x_test and y_test together"),
        ({"x_test": pixels(2), "y_test": Y, "test": 0.1}, "give one of these"),
        ({"x_test": pixels(3), "y_test": Y}, "test split: expected rows like the training rows"),
        ({"x_test": pixels(2), "y_test": Y[:, None]}, r"expected y of shape \[N\]"),
        ({"mean": [0.5]}, "mean and std together"),
        ({"test": 2.0}, "between 0 and 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^arrays.*{message}"):
        from_arrays(pixels(2), Y, **options)


def test_ragged_lists_are_refused() -> None:
    with pytest.raises(UserError, match="arrays that NumPy can convert"):
        from_arrays([[1], [1, 2]], [0, 1])


def test_prepare_uses_the_given_mean_and_std() -> None:
    data = from_arrays(
        pixels(6, 5, 3), Y, mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5], group=list("abcd") * 5, name="pets"
    )
    out = data.prepare(data.train.x)
    assert (float(out.min()) >= -1, float(out.max()) <= 1, data.name) == (True, True, "pets")
    assert data.train.group is not None
    assert len(data.train.group) == len(data.train)


def test_errors_use_the_callers_row_numbers() -> None:
    x = np.zeros((20, 2), "float32")
    x[13, 1] = np.nan
    with pytest.raises(UserError, match=r"first in row 13\)"):
        from_arrays(x, np.arange(20) % 2)
