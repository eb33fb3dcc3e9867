"""Load datasets by name from one dataset folder, which holds each of them in its official layout."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import torch

from unskew.base.errors import UserError, expected_one_of
from unskew.base.plugins import load_plugins
from unskew.data import huggingface
from unskew.data.arrays import DEFAULT_TEST, from_arrays
from unskew.data.celeba import celeba
from unskew.data.checked_files import DATASET_FOLDER_HINT
from unskew.data.cifar import cifar10, cifar100
from unskew.data.dataset import Dataset, Split
from unskew.data.digits import digits
from unskew.data.har import hapt, ucihar
from unskew.data.image_folders import blank_images, cinic10, image_folder
from unskew.data.mnist_idx import EMNIST_CLASSES, emnist, fashion_mnist, mnist
from unskew.data.npz import npz

__all__ = ["Dataset", "LoadRequest", "Split", "data_root", "dataset", "from_arrays", "load", "load_labels", "names"]


@dataclass(frozen=True)
class LoadRequest:
    """Arguments of `load`: dataset folder, test fraction (None: the dataset's default), seed, checksum verification."""

    name: str
    root: Path
    test: float | None
    seed: int
    verify: bool


Loader: TypeAlias = Callable[[LoadRequest], Dataset]


def load(
    name: str, root: str | Path | None = None, *, test: float | None = None, seed: int = 0, verify: bool = True
) -> Dataset:
    """A dataset by name (see `names`), or any `.npz` or folder of images, by path or by name in the dataset folder.

    Some names take an option after a colon: `celeba:Male`, `ucihar:total_acc+body_gyro`.

    test, seed: fraction and seed of the test split, for data without an official one; verify: check official checksums.
    """
    request = LoadRequest(name, data_root(root), test, seed, verify)
    loader = registered(name) or _OPTION_LOADERS.get(name.partition(":")[0])
    if loader is not None:
        return loader(request)
    if name.startswith(huggingface.PREFIX):
        return huggingface.load_hub(name, request.root, test=test, seed=seed)
    file = _npz_file(request)
    folder = _image_folder(request) if file is None else None
    if folder is not None:
        return image_folder(folder, test=test, seed=seed)
    if file is None:
        choice = "hf:NAME, the path of an .npz file or of a folder of images, or one of"
        raise UserError(
            f"{expected_one_of(names(), name, choice)}; {request.root} has neither {name}.npz nor a folder {name}; to "
            f"use another dataset folder, {DATASET_FOLDER_HINT}"
        )
    return npz(file, test=test, seed=seed)


def load_labels(
    name: str, root: str | Path | None = None, *, test: float | None = None, seed: int = 0, verify: bool = True
) -> Dataset:
    """Like `load`, for callers that need only labels and groups: if every row is a file, no row is read."""
    request = LoadRequest(name, data_root(root), test, seed, verify)
    loader = _LABEL_LOADERS.get(name.partition(":")[0])
    if loader is not None:
        return loader(request)
    if registered(name) is None and not name.startswith(huggingface.PREFIX) and _npz_file(request) is None:
        folder = _image_folder(request)
        if folder is not None:
            return image_folder(folder, test=test, seed=seed, read_rows=blank_images)
    return load(name, root, test=test, seed=seed, verify=verify)


def dataset(name: str) -> Callable[[Loader], Loader]:
    """Register a function from `LoadRequest` to `Dataset` under a name that recipes can use."""

    def register(loader: Loader) -> Loader:
        _LOADERS[name] = loader
        return loader

    return register


def registered(name: str) -> Loader | None:
    """The loader of a dataset by its name; None for paths and for names that are not registered."""
    load_plugins()
    return _LOADERS.get(name)


def names() -> tuple[str, ...]:
    """Names that `load` accepts, besides paths of `.npz` files and of image folders."""
    load_plugins()
    return tuple(sorted(_LOADERS))


def data_root(explicit: str | Path | None = None) -> Path:
    """The dataset folder: the argument, else UNSKEW_DATA, else `unskew` in the user's cache folder."""
    if explicit is not None:
        return Path(explicit).expanduser()
    if os.environ.get("UNSKEW_DATA"):
        return Path(os.environ["UNSKEW_DATA"]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "unskew"


def _npz_file(request: LoadRequest) -> Path | None:
    """The `.npz` file a name refers to, None if the name is not one; a path without a file is an error."""
    given = Path(request.name).expanduser()
    if given.suffix != ".npz":
        in_root = request.root / f"{request.name}.npz"
        return in_root if in_root.is_file() else None
    for file in (given, request.root / given):
        if file.is_file():
            return file
    also = "" if given.is_absolute() else f" or at {request.root / given}"
    raise UserError(f"expected an .npz file, found none at {given}{also}; check the path, or {DATASET_FOLDER_HINT}")


def _image_folder(request: LoadRequest) -> Path | None:
    """The folder a name refers to, if any: as a path, else inside the dataset folder."""
    given = Path(request.name).expanduser()
    return next((path for path in (given, request.root / given) if request.name and path.is_dir()), None)


def _digits(request: LoadRequest) -> Dataset:
    return digits(DEFAULT_TEST if request.test is None else request.test)


def _urbansound(request: LoadRequest) -> Dataset:
    from unskew.data.urbansound import urbansound8k  # imported here because scipy.signal is slow to import

    return urbansound8k(request.root, test=request.test, seed=request.seed)


def _urbansound_labels(request: LoadRequest) -> Dataset:
    """UrbanSound8K's labels, with blank rows in place of the sound."""
    from unskew.data.urbansound import urbansound8k

    def blank_rows(root: Path, clips: Sequence[object], seed: int) -> torch.Tensor:
        return torch.zeros(len(clips), 2, 1, 1)

    return urbansound8k(request.root, test=request.test, seed=request.seed, read_rows=blank_rows)


def _official(read: Callable[..., Dataset]) -> Loader:
    """A loader for a dataset with official test rows, which refuses a test fraction instead of ignoring it."""

    def loader(request: LoadRequest) -> Dataset:
        if request.test is not None:
            raise UserError(
                f"{request.name}: expected no test fraction, because the dataset has official test rows, "
                f"found {request.test}; leave it out"
            )
        return read(request.root, verify=request.verify)

    return loader


def _official_with_option(read: Callable[..., Dataset], keyword: str, parse: Callable[[str], object] = str) -> Loader:
    """An official loader that passes the text after a colon, as in celeba:Male, as the argument `keyword`."""

    def loader(request: LoadRequest) -> Dataset:
        _, colon, option = request.name.partition(":")
        return _official(partial(read, **({keyword: parse(option)} if colon else {})))(request)

    return loader


def _split_plus(option: str) -> tuple[str, ...]:
    return tuple(option.split("+"))


_OPTION_LOADERS: Mapping[str, Loader] = {
    "celeba": _official_with_option(celeba, "attribute"),
    "hapt": _official_with_option(hapt, "channels", _split_plus),
    "ucihar": _official_with_option(ucihar, "channels", _split_plus),
}

# One line per dataset; a dataset that needs more than the dataset folder gets a small function like _digits.
_LOADERS: dict[str, Loader] = {
    **_OPTION_LOADERS,
    "cinic10": _official(cinic10),
    "digits": _digits,
    "cifar10": _official(cifar10),
    "cifar100": _official(cifar100),
    "mnist": _official(mnist),
    "fashion-mnist": _official(fashion_mnist),
    "urbansound8k": _urbansound,
    **{f"emnist-{variant}": _official(partial(emnist, variant=variant)) for variant in EMNIST_CLASSES},
}

# Loaders of datasets with one file per row that read labels only.
_LABEL_LOADERS: Mapping[str, Loader] = {
    "celeba": _official_with_option(partial(celeba, read_rows=blank_images), "attribute"),
    "cinic10": _official(partial(cinic10, read_rows=blank_images)),
    "urbansound8k": _urbansound_labels,
}
