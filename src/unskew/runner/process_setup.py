"""What a run changes in the process it lives in: memory, precision, device, full disks."""

import contextlib
import ctypes
import errno
import platform
from collections.abc import Iterator
from pathlib import Path

import torch

from unskew.base.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as the C library names them
LARGEST, KEPT = 32 * 2**20, 2**30  # bytes: of one tensor, the most that the library allows; of what is free in all


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """TF32 only when asked for; the caller's settings come back."""
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn


def keep_freed_memory() -> None:
    """Have the C library hand freed memory to the next tensor, instead of giving it back and asking for it anew.

    The system zeroes new pages one by one: 0.13 of the 0.77 s of a step of mobilenet_v2 on a CPU (batch 32), and
    12 of 24 s of scoring 2000 rows in hundreds. It stays so for the life of the process and those forked from it.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, LARGEST)
        library.mallopt(M_TRIM_THRESHOLD, KEPT)


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Make a GPU the current one, on which CUDA graphs and kernels of our own start; the caller's comes back."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@contextlib.contextmanager
def told_when_full(folder: Path) -> Iterator[None]:
    """No room to write is the user's to mend; files are replaced whole, so the last checkpoint is still there."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise UserError(
            f"{folder}: expected room to write, found: {error.strerror}; what was saved before is whole: free some "
            "space, then type the same command with --resume"
        ) from error
