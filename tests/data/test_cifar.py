"""CIFAR readers on small folders in the official layouts."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unskew.base.errors import UserError
from unskew.data import Dataset, load

Batch = tuple[np.ndarray, np.ndarray]


def batch(seed: int, rows: int = 4, classes: int = 10) -> Batch:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, 3072), dtype=np.uint8), rng.integers(0, classes, rows)


def write_cifar10_binary(root: Path) -> None:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for i in range(6):
        x, y = batch(i)
        name = f"data_batch_{i + 1}.bin" if i < 5 else "test_batch.bin"
        np.concatenate([y[:, None].astype(np.uint8), x], axis=1).tofile(folder / name)


def write_cifar10_python(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for i in range(6):
        x, y = batch(i)
        content = {
            b"batch_label": b"training batch",
            b"labels": y.tolist(),
            b"data": x,
            b"filenames": [b"a.png"] * len(y),
        }
        name = f"data_batch_{i + 1}" if i < 5 else "test_batch"
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def write_cifar100_binary(root: Path) -> None:
    folder = root / "cifar-100-binary"
    folder.mkdir()
    for i, name in enumerate(("train.bin", "test.bin")):
        x, y = batch(i, classes=100)
        labels = np.stack([y // 5, y], axis=1).astype(np.uint8)  # coarse, then fine
        np.concatenate([labels, x], axis=1).tofile(folder / name)


def write_cifar100_python(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir()
    for i, name in enumerate(("train", "test")):
        x, y = batch(i, classes=100)
        content = {b"fine_labels": y.tolist(), b"coarse_labels": (y // 5).tolist(), b"data": x}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


@pytest.mark.parametrize("write", [write_cifar10_binary, write_cifar10_python])
def test_cifar10_is_read_from_both_layouts(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    data = load("cifar10", tmp_path, verify=False)
    x = np.concatenate([batch(i)[0] for i in range(5)]).reshape(20, 3, 32, 32)
    assert np.array_equal(data.train.x.numpy(), x)
    assert np.array_equal(data.train.y.numpy(), np.concatenate([batch(i)[1] for i in range(5)]))
    assert np.array_equal(data.test.y.numpy(), batch(5)[1])
    assert (data.shape, data.num_classes, data.classes[3]) == ((3, 32, 32), 10, "cat")


@pytest.mark.parametrize("write", [write_cifar100_binary, write_cifar100_python])
def test_cifar100_uses_fine_labels(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    data = load("cifar100", tmp_path, verify=False)
    assert np.array_equal(data.train.x.numpy().reshape(4, -1), batch(0, classes=100)[0])
    assert np.array_equal(data.train.y.numpy(), batch(0, classes=100)[1])
    assert np.array_equal(data.test.y.numpy(), batch(1, classes=100)[1])
    assert list(data.classes) == sorted(data.classes)
    assert len(set(data.classes)) == 100


def check_refused(root: Path, name: str, message: str, verify: bool = False) -> None:
    with pytest.raises(UserError, match=message):
        load(name, root, verify=verify)


@pytest.mark.parametrize(
    ("write", "file"), [(write_cifar10_binary, "data_batch_1.bin"), (write_cifar10_python, "data_batch_1")]
)
def test_wrong_checksum_is_refused_by_name(tmp_path: Path, write: Callable[[Path], None], file: str) -> None:
    write(tmp_path)
    check_refused(
        tmp_path, "cifar10", rf"{file}: expected md5 [0-9a-f]{{32}}, found [0-9a-f]{{32}}; .*download", verify=True
    )


def test_wrong_size_is_refused_if_no_checksum_is_known(tmp_path: Path) -> None:
    write_cifar100_binary(tmp_path)
    check_refused(tmp_path, "cifar100", r"train\.bin: expected 153700000 bytes, found 12296", verify=True)


def test_truncated_binary_is_refused(tmp_path: Path) -> None:
    write_cifar10_binary(tmp_path)
    file = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-1])
    check_refused(tmp_path, "cifar10", r"data_batch_3\.bin: expected one or more records of 3073 bytes")


def test_truncated_pickle_is_refused(tmp_path: Path) -> None:
    write_cifar10_python(tmp_path)
    file = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    file.write_bytes(file.read_bytes()[:-100])
    check_refused(tmp_path, "cifar10", "data_batch_3: expected a pickle")


def test_mislabelled_binary_is_refused(tmp_path: Path) -> None:
    write_cifar10_binary(tmp_path)
    file = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    content = bytearray(file.read_bytes())
    content[3073] = 10
    file.write_bytes(content)
    check_refused(tmp_path, "cifar10", r"test_batch\.bin: expected labels from 0 to 9, found 10 in row 1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 10]}, "found 10 in row 1"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "expected 2 integers in labels"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [b"a", b"b"]}, "expected 2 integers in labels"),
        ({b"data": np.zeros((2, 3072), np.float32), b"labels": [0, 1]}, "expected data as uint8"),
        ({b"data": [1, 2], b"labels": [0, 1]}, "expected data as uint8"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1]}, "found data, fine_labels"),
        ([1, 2], "found a value of type list"),
    ],
)
def test_pickles_of_other_content_are_refused(tmp_path: Path, content: object, message: str) -> None:
    write_cifar10_python(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(pickle.dumps(content, protocol=2))
    check_refused(tmp_path, "cifar10", f"data_batch_2: .*{message}")


def test_ragged_labels_are_refused(tmp_path: Path) -> None:
    write_cifar10_python(tmp_path)
    content = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [[0], [1, 2]]}
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(pickle.dumps(content, protocol=2))
    check_refused(tmp_path, "cifar10", "data_batch_2: expected 2 integers in labels")


def test_missing_files_are_listed_with_a_hint(tmp_path: Path) -> None:
    write_cifar10_binary(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    check_refused(
        tmp_path,
        "cifar10",
        r"(?s)cifar-10-batches-bin: data_batch_4\.bin\n.*cifar-10-batches-py.*UNSKEW_DATA.*--data-dir",
    )


def test_a_complete_layout_is_used_if_another_is_incomplete(tmp_path: Path) -> None:
    write_cifar10_python(tmp_path)
    (tmp_path / "cifar-10-batches-bin").mkdir()
    data: Dataset = load("cifar10", tmp_path, verify=False)
    assert len(data.train) == 20
