"""Ctrl-C (SIGINT) and requests to terminate (SIGTERM): when they are handled and when they are deferred."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

RETRY_AFTER = 0.05  # seconds until a signal that arrived during an import is tried again
RETRY_SIGNAL = getattr(signal, "SIGALRM", None)  # the signal that the retry timer sends; missing on some systems
DEFERRED = tuple(number for number in (signal.SIGINT, signal.SIGTERM, RETRY_SIGNAL) if number is not None)


def on_signal(number: signal.Signals, act: Callable[[], None]) -> None:
    """Call `act` when the signal arrives, but never during an import.

    An exception raised during an import leaves the module half initialised, or the importing code swallows it and the
    process never terminates. Importing torch takes a second, in which that happened.
    """

    def handle(received: int, frame: FrameType | None) -> None:
        if RETRY_SIGNAL is not None and _is_importing(frame):
            signal.signal(RETRY_SIGNAL, handle)
            signal.setitimer(signal.ITIMER_REAL, RETRY_AFTER)
        else:
            act()

    signal.signal(number, handle)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C and requests to terminate until the end of the block.

    This uses handlers, because a signal mask covers one thread only and another thread would receive the signal.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    pending: list[int] = []
    handlers = {number: signal.signal(number, lambda got, frame: pending.append(got)) for number in DEFERRED}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in pending:  # also after an exception: a caller that catches it must still see the signal
            signal.raise_signal(number)


@uninterrupted()
def remove_folder(path: Path, ignore_errors: bool = False) -> None:
    """`shutil.rmtree` with signals deferred: interrupted by Ctrl-C it closes a file twice and raises another error."""
    shutil.rmtree(path, ignore_errors=ignore_errors)
