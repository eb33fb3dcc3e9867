"""Storage of clients' state between rounds: in the memory of a device, or in a file for each client."""

from __future__ import annotations

import itertools
import tempfile
import weakref
from pathlib import Path
from typing import Protocol

import safetensors.numpy
import safetensors.torch
import torch
from torch import Tensor

from unskew.base.signals import remove_folder
from unskew.base.tree import Tree, flatten_parts, tree_map, unflatten_parts


class StoredState(Protocol):
    """One client's stored state."""

    def tree(self) -> Tree: ...


class Storage(Protocol):
    """Stores states; a state is deleted once nothing refers to its `StoredState`."""

    def store(self, tree: Tree) -> StoredState: ...

    def close(self) -> None: ...


class MemoryStorage:
    """On a device: the GPU if all states would fit, else the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def store(self, tree: Tree) -> StoredState:
        return _StoredInMemory(tree_map(lambda t: _copy_if_view(t.detach().to(self._device)), tree))

    def close(self) -> None:
        pass


class _StoredInMemory:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def tree(self) -> Tree:
        return self._tree


class DiskStorage:
    """In files of a folder that is removed at the end.

    The files need not survive the run: a checkpoint has its own copies, and a resumed run starts from those.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: emptied first, because a killed run may have left it; default: a new temporary folder."""
        if folder is not None:
            remove_folder(folder, ignore_errors=True)
        self._folder = folder or Path(tempfile.mkdtemp(prefix="unskew-clients-"))
        self._numbers = itertools.count()
        self._remove = weakref.finalize(self, remove_folder, self._folder, ignore_errors=True)

    def store(self, tree: Tree) -> StoredState:
        self._folder.mkdir(parents=True, exist_ok=True)
        return _StoredInFile(self._folder / f"{next(self._numbers)}.safetensors", tree)

    def close(self) -> None:
        self._remove()


class _StoredInFile:
    """A file that is deleted with the object."""

    def __init__(self, path: Path, tree: Tree) -> None:
        self._path = path
        weakref.finalize(self, path.unlink, missing_ok=True)
        arrays = {name: t.detach().cpu().contiguous().numpy() for name, t in flatten_parts(tree).items()}
        path.write_bytes(safetensors.numpy.save(arrays))  # a full disk is then an OSError, which the runner explains

    def tree(self) -> Tree:
        return unflatten_parts(safetensors.torch.load_file(self._path))


def _copy_if_view(t: Tensor) -> Tensor:
    """A copy of a view, because one client's row of a stack would keep the whole stack alive."""
    return t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
