"""Ctrl-C and requests to end: when they arrive, and when they wait."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

AGAIN = 0.05  # seconds after which a signal that came inside an import comes again
LATE = getattr(signal, "SIGALRM", None)  # by which it comes; not everywhere
NUMBERS = tuple(number for number in (signal.SIGINT, signal.SIGTERM, LATE) if number is not None)


def listen(number: signal.Signals, act: Callable[[], None]) -> None:
    """Call `act` when the signal arrives, but never inside an import.

    There an exception leaves a module half made, or whoever imports swallows it, and the process goes on as if nobody
    had asked it to end: importing torch takes a second in which that happened.
    """

    def handle(got: int, frame: FrameType | None) -> None:
        if LATE is not None and _importing(frame):
            signal.signal(LATE, handle)
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        else:
            act()

    signal.signal(number, handle)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and a request to end back for a moment; they arrive when it is over.

    By handlers, not by a mask: a mask holds for one thread, and another one would take the signal.
    """
    if threading.current_thread() is not threading.main_thread():  # signals never arrive here
        yield
        return
    waiting: list[int] = []
    before = {number: signal.signal(number, lambda got, frame: waiting.append(got)) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for late in waiting:  # also where the moment ended in an error, which somebody may take for no end
            signal.raise_signal(late)


@uninterrupted()
def remove_folder(path: Path, ignore_errors: bool = False) -> None:
    """Python's own way, which Ctrl-C can turn into another error: it closes a file a second time then."""
    shutil.rmtree(path, ignore_errors=ignore_errors)
