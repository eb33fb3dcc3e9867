"""What a run changes in the process it lives in, for as long as it needs it: precision, device, signals, full disks."""

import contextlib
import errno
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import torch

from unskew.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Make a GPU the current one, on which CUDA graphs and kernels of our own start; the caller's comes back."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and a request to end back for a moment; they arrive when it is over.

    By handlers, not by a mask: a mask holds for one thread, and another one would take the signal.
    """
    if threading.current_thread() is not threading.main_thread():  # signals never arrive here
        yield
        return
    waiting: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda got, frame: waiting.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    for late in waiting:
        signal.raise_signal(late)


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
