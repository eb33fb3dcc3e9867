"""Where clients' state rests between rounds: in the memory of a device, or in a file for each client."""

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
    """One client's state at rest."""

    def tree(self) -> Tree: ...


class Storage(Protocol):
    """Takes a state in; what is no longer referred to is gone."""

    def keep(self, tree: Tree) -> StoredState: ...

    def close(self) -> None: ...


class MemoryStorage:
    """On a device: the GPU if all would fit, else the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def keep(self, tree: Tree) -> StoredState:
        return _Held(tree_map(lambda t: _own(t.detach().to(self._device)), tree))

    def close(self) -> None:
        pass


class _Held:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def tree(self) -> Tree:
        return self._tree


class DiskStorage:
    """In files of a folder that is made when the first state comes and removed at the end.

    No file is written for ever: a checkpoint has its own copies, and a run that goes on begins with those.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: emptied first, because a killed run may have left it; a temporary one without it."""
        if folder is not None:
            remove_folder(folder, ignore_errors=True)
        self._folder = folder or Path(tempfile.mkdtemp(prefix="unskew-clients-"))
        self._numbers = itertools.count()
        self._remove = weakref.finalize(self, remove_folder, self._folder, ignore_errors=True)

    def keep(self, tree: Tree) -> StoredState:
        self._folder.mkdir(parents=True, exist_ok=True)
        return _File(self._folder / f"{next(self._numbers)}.safetensors", tree)

    def close(self) -> None:
        self._remove()


class _File:
    """A file that goes with the object."""

    def __init__(self, path: Path, tree: Tree) -> None:
        self._path = path
        weakref.finalize(self, path.unlink, missing_ok=True)
        arrays = {name: t.detach().cpu().contiguous().numpy() for name, t in flatten_parts(tree).items()}
        path.write_bytes(safetensors.numpy.save(arrays))  # a full disk is then an OSError, which the runner explains

    def tree(self) -> Tree:
        return unflatten_parts(safetensors.torch.load_file(self._path))


def _own(t: Tensor) -> Tensor:
    """A tensor with memory of its own: one client's row of a stack would keep the whole stack alive."""
    return t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
