"""Signals wait while a round is being completed, whatever other threads there are."""

import os
import signal
import threading

import pytest
import torch

from unskew.engine.mapping import vmap
from unskew.process import uninterrupted


def block(number: signal.Signals, finished: list[int]) -> None:
    with uninterrupted():
        os.kill(os.getpid(), number)
        finished.extend(range(1000))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_arrives_after_the_block(number: signal.Signals) -> None:
    """Twenty times with an idle thread that could take the signal: the block always ends first."""
    done, idle = threading.Event(), threading.Thread(target=lambda: done.wait(30), daemon=True)
    before = signal.signal(number, signal.default_int_handler)
    idle.start()
    try:
        for _ in range(20):
            finished: list[int] = []
            with pytest.raises(KeyboardInterrupt):
                block(number, finished)
            assert len(finished) == 1000
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        done.set()
        signal.signal(number, before)


def test_ctrl_c_does_not_leave_a_mapped_function_half_way() -> None:
    """A level of vmap that stayed behind would break everything that the process does later."""
    reached = []

    def one(x: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(1)
        return 2 * x

    with pytest.raises(KeyboardInterrupt):
        vmap(one)(torch.ones(3))
    assert reached == [1]
    assert torch._C._functorch.maybe_current_level() is None  # type: ignore[attr-defined]


def test_other_threads_are_left_alone() -> None:
    seen = []

    def work() -> None:
        with uninterrupted():
            seen.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]
