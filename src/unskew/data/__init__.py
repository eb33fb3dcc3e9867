"""Datasets by name, as `load` reads them from one folder that holds the official layouts side by side."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import torch

from unskew.base.errors import UserError, nearest
from unskew.data import huggingface
from unskew.data.arrays import DEFAULT_TEST, from_arrays
from unskew.data.celeba import celeba
from unskew.data.checked_files import HOW_TO_SET_ROOT
from unskew.data.cifar import cifar10, cifar100
from unskew.data.dataset import Dataset, Split
from unskew.data.digits import digits
from unskew.data.har import hapt, ucihar
from unskew.data.image_folders import cinic10, image_folder, unread
from unskew.data.mnist_idx import EMNIST_CLASSES, emnist, fashion_mnist, mnist
from unskew.data.npz import npz

__all__ = ["Dataset", "Split", "data_root", "from_arrays", "load", "load_labels", "names"]


@dataclass(frozen=True)
class LoadRequest:
    """What was asked of a dataset: the folder of its files, the test fraction (None: its own), seed, and checksums."""

    name: str
    root: Path
    test: float | None
    seed: int
    verify: bool


Loader: TypeAlias = Callable[[LoadRequest], Dataset]


def load(
    name: str, root: str | Path | None = None, *, test: float | None = None, seed: int = 0, verify: bool = True
) -> Dataset:
    """A dataset by name (see `names`), or any `.npz` or folder of images, by path or by name in the data folder.

    Some names take a choice after a colon: `celeba:Male`, `ucihar:total_acc+body_gyro`.

    test, seed: fraction and seed of the test split, for data that come without one; verify: check official checksums.
    """
    request = LoadRequest(name, data_root(root), test, seed, verify)
    loader = _LOADERS.get(name) or _CHOOSING.get(name.partition(":")[0])
    if loader is not None:
        return loader(request)
    if name.startswith(huggingface.PREFIX):
        return huggingface.hub(name, request.root, test=test, seed=seed)
    file = _npz_file(request)
    folder = _image_folder(request) if file is None else None
    if folder is not None:
        return image_folder(folder, test=test, seed=seed)
    if file is None:
        raise UserError(
            f"expected a dataset among {', '.join(names())}, a path ending in .npz, hf:NAME, or a folder of images, "
            f"found {name} (and no {name}.npz nor a folder {name} in {request.root}; to look elsewhere, "
            f"{HOW_TO_SET_ROOT}){nearest(name, names())}"
        )
    return npz(file, test=test, seed=seed)


def load_labels(
    name: str, root: str | Path | None = None, *, test: float | None = None, seed: int = 0, verify: bool = True
) -> Dataset:
    """As `load`, for those who look at labels and owners only: where every row is a file of its own, none is opened."""
    request = LoadRequest(name, data_root(root), test, seed, verify)
    loader = _UNREAD.get(name.partition(":")[0])
    if loader is not None:
        return loader(request)
    if name not in _LOADERS and not name.startswith(huggingface.PREFIX) and _npz_file(request) is None:
        folder = _image_folder(request)
        if folder is not None:
            return image_folder(folder, test=test, seed=seed, gather=unread)
    return load(name, root, test=test, seed=seed, verify=verify)


def names() -> tuple[str, ...]:
    """Names that `load` knows, besides paths of `.npz` files and of folders of images."""
    return tuple(sorted(_LOADERS))


def data_root(explicit: str | Path | None = None) -> Path:
    """The folder of the data: the one given, else UNSKEW_DATA, else `unskew` in the user's cache folder."""
    if explicit is not None:
        return Path(explicit).expanduser()
    if os.environ.get("UNSKEW_DATA"):
        return Path(os.environ["UNSKEW_DATA"]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "unskew"


def _npz_file(request: LoadRequest) -> Path | None:
    """The file a name stands for, None when it is no .npz; a path that leads nowhere is an error."""
    given = Path(request.name).expanduser()
    if given.suffix != ".npz":
        beside = request.root / f"{request.name}.npz"
        return beside if beside.is_file() else None
    for file in (given, request.root / given):
        if file.is_file():
            return file
    nor = "" if given.is_absolute() else f" nor at {request.root / given}"
    raise UserError(f"expected an .npz file, found none at {given}{nor}; check the path, or {HOW_TO_SET_ROOT}")


def _image_folder(request: LoadRequest) -> Path | None:
    """The folder a name stands for, if any; like a file, first as a path and then in the data folder."""
    given = Path(request.name).expanduser()
    return next((path for path in (given, request.root / given) if request.name and path.is_dir()), None)


def _digits(request: LoadRequest) -> Dataset:
    return digits(DEFAULT_TEST if request.test is None else request.test)


def _urbansound(request: LoadRequest) -> Dataset:
    from unskew.data.urbansound import urbansound8k  # late, since SciPy's signal part is slow to import

    return urbansound8k(request.root, test=request.test, seed=request.seed)


def _clips(request: LoadRequest) -> Dataset:
    """UrbanSound8K's labels, without a second of sound."""
    from unskew.data.urbansound import urbansound8k

    def blank(root: Path, clips: Sequence[object], seed: int) -> torch.Tensor:
        return torch.zeros(len(clips), 2, 1, 1)

    return urbansound8k(request.root, test=request.test, seed=request.seed, gather=blank)


def _official(read: Callable[..., Dataset]) -> Loader:
    """A loader for data whose authors fixed the test rows: asking for another fraction is refused, not ignored."""

    def loader(request: LoadRequest) -> Dataset:
        if request.test is not None:
            raise UserError(
                f"{request.name}: expected no test fraction, since the dataset has its own test rows, "
                f"found {request.test}; leave it out"
            )
        return read(request.root, verify=request.verify)

    return loader


def _chosen(read: Callable[..., Dataset], keyword: str, parse: Callable[[str], object] = str) -> Loader:
    """An official loader for data of which a part is chosen after a colon, as in celeba:Male; none is its default."""

    def loader(request: LoadRequest) -> Dataset:
        _, colon, choice = request.name.partition(":")
        return _official(partial(read, **({keyword: parse(choice)} if colon else {})))(request)

    return loader


def _joined(choice: str) -> tuple[str, ...]:
    return tuple(choice.split("+"))


_CHOOSING: Mapping[str, Loader] = {
    "celeba": _chosen(celeba, "attribute"),
    "hapt": _chosen(hapt, "channels", _joined),
    "ucihar": _chosen(ucihar, "channels", _joined),
}

# One line per dataset; a dataset that needs more than its root gets a small function like _digits.
_LOADERS: Mapping[str, Loader] = {
    **_CHOOSING,
    "cinic10": _official(cinic10),
    "digits": _digits,
    "cifar10": _official(cifar10),
    "cifar100": _official(cifar100),
    "mnist": _official(mnist),
    "fashion-mnist": _official(fashion_mnist),
    "urbansound8k": _urbansound,
    **{f"emnist-{variant}": _official(partial(emnist, variant=variant)) for variant in EMNIST_CLASSES},
}

# The same without opening a file a row.
_UNREAD: Mapping[str, Loader] = {
    "celeba": _chosen(partial(celeba, gather=unread), "attribute"),
    "cinic10": _official(partial(cinic10, gather=unread)),
    "urbansound8k": _clips,
}
