"""CIFAR-10 and CIFAR-100 in the official binary and python (pickled) layouts.

The pickles are read by `safe_pickle`, which executes no code. CIFAR-100 uses its 100 fine labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from unskew.base.errors import UserError
from unskew.data import safe_pickle
from unskew.data.checked_files import check_labels, missing_files_error, read_checked
from unskew.data.dataset import Dataset, Split

ImagesAndLabels: TypeAlias = tuple[np.ndarray, np.ndarray]  # [N, 3072] uint8 and [N] labels
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Layout:
    folder: str
    train: tuple[str, ...]
    test: str
    parse: Callable[[Path, bytes], ImagesAndLabels]

    def paths(self, root: Path) -> list[Path]:
        """The training files and, last, the test file."""
        return [root / self.folder / name for name in (*self.train, self.test)]


def cifar10(root: Path, *, verify: bool = True) -> Dataset:
    """CIFAR-10 from `cifar-10-batches-bin` or `cifar-10-batches-py` under root: uint8 [N, 3, 32, 32], 10 classes."""
    batches = tuple(f"data_batch_{i}" for i in range(1, 6))
    layouts = (
        _Layout(
            "cifar-10-batches-bin", tuple(f"{b}.bin" for b in batches), "test_batch.bin", partial(_binary, header=1)
        ),
        _Layout("cifar-10-batches-py", batches, "test_batch", partial(_pickled, key="labels")),
    )
    train, test = _read("cifar10", root, layouts, len(_NAMES_10), verify)
    mean, std = (0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)
    return Dataset("cifar10", train, test, _NAMES_10, mean, std)


def cifar100(root: Path, *, verify: bool = True) -> Dataset:
    """CIFAR-100 from `cifar-100-binary` or `cifar-100-python` under root: uint8 [N, 3, 32, 32], 100 fine classes."""
    layouts = (
        _Layout("cifar-100-binary", ("train.bin",), "test.bin", partial(_binary, header=2)),
        _Layout("cifar-100-python", ("train",), "test", partial(_pickled, key="fine_labels")),
    )
    train, test = _read("cifar100", root, layouts, len(_NAMES_100), verify)
    return Dataset("cifar100", train, test, _NAMES_100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


def _read(name: str, root: Path, layouts: Sequence[_Layout], classes: int, verify: bool) -> tuple[Split, Split]:
    """Train and test rows of the first complete layout."""
    for layout in layouts:
        paths = layout.paths(root)
        if all(path.is_file() for path in paths):
            *train, test = (_read_file(path, layout, classes, verify) for path in paths)
            return _stack(train), _stack([test])
    raise missing_files_error(name, root, [layout.paths(root) for layout in layouts])


def _read_file(path: Path, layout: _Layout, classes: int, verify: bool) -> ImagesAndLabels:
    key = f"{layout.folder}/{path.name}"
    data = read_checked(path, md5=_MD5.get(key), size=_SIZE.get(key), verify=verify)
    x, y = layout.parse(path, data)
    check_labels(path, y, classes)
    return x, y


def _stack(batches: Sequence[ImagesAndLabels]) -> Split:
    x = np.concatenate([x for x, _ in batches]).reshape(-1, 3, 32, 32)
    y = np.concatenate([y for _, y in batches]).astype(np.int64)
    return Split(torch.from_numpy(x), torch.from_numpy(y))


def _binary(path: Path, data: bytes, header: int) -> ImagesAndLabels:
    """Records of `header` label bytes, of which the last is used, then the pixels channel by channel."""
    record = header + _PIXELS
    if not data or len(data) % record:
        raise UserError(
            f"{path}: expected one or more records of {record} bytes, found {len(data)} bytes "
            f"({len(data) % record} left over); the file is truncated or has another layout; download it again"
        )
    table = np.frombuffer(data, dtype=np.uint8).reshape(-1, record)
    return table[:, header:], table[:, header - 1]


def _pickled(path: Path, data: bytes, key: str) -> ImagesAndLabels:
    """The arrays under "data" and `key` of a pickled dict, whose keys may be bytes or text."""
    batch = safe_pickle.load(data, path)
    fields = {} if type(batch) is not dict else {_text(k): v for k, v in batch.items()}
    if "data" not in fields or key not in fields:
        content = ", ".join(fields) or f"a value of type {type(batch).__name__}"
        raise UserError(f"{path}: expected a pickled dict with data and {key}, found {content}; download it again")
    x, y = fields["data"], _integers(fields[key])
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != _PIXELS or not len(x):
        actual = f"{x.dtype} {list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__
        raise UserError(f"{path}: expected data as uint8 [N, {_PIXELS}], found {actual}; download it again")
    if len(y) != len(x):
        raise UserError(f"{path}: expected {len(x)} integers in {key}, found {len(y)}; download it again")
    return x, y


def _integers(labels: object) -> np.ndarray:
    """A list of small integers as [N] int64; anything else gives an empty array."""
    if type(labels) is not list or not all(type(label) is int and abs(label) < 2**31 for label in labels):
        return np.empty(0, dtype=np.int64)
    return np.array(labels, dtype=np.int64)


def _text(key: bytes | str | int) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


_MD5 = {
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
# No checksum is published for these two files, so their official sizes are checked instead.
_SIZE = {"cifar-100-binary/train.bin": 50_000 * (2 + _PIXELS), "cifar-100-binary/test.bin": 10_000 * (2 + _PIXELS)}

_NAMES_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
_NAMES_100 = tuple(_FINE.split())
