"""Which GPU is torch's current device during a run. torch.cuda.device is replaced, so that no GPU is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import unskew as us
from unskew.base.environment import pick_device
from unskew.runner import process_setup as process

from . import toys


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The stack of current devices; the last one is in force."""
    stack = [0]

    class Device:
        def __init__(self, device: torch.device) -> None:
            self.index = device.index

        def __enter__(self) -> None:
            stack.append(self.index)

        def __exit__(self, *_: object) -> None:
            stack.pop()

    monkeypatch.setattr(torch.cuda, "device", Device)
    return stack


def test_a_gpu_becomes_the_current_device_and_the_callers_is_restored(current: list[int]) -> None:
    with process.on_device(torch.device("cuda:1")):
        assert current[-1] == 1
        with process.on_device(torch.device("cpu")):
            assert current[-1] == 1
    assert current == [0]


@pytest.mark.parametrize("end", ["finished", "interrupted"])
def test_all_rounds_run_on_the_device_of_the_engine(
    end: str, current: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, during = [], []

    def use_gpu_1(device: torch.device) -> object:
        requested.append(device)
        return process.on_device(torch.device("cuda:1"))

    def record_device(phase: str, round: int) -> None:
        during.append(current[-1])
        if end == "interrupted" and round == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("unskew.runner.run_experiment.on_device", use_gpu_1)
    try:
        toys.run(tmp_path, phase=record_device)
    except KeyboardInterrupt:
        assert end == "interrupted"
    assert requested == [torch.device("cpu")]  # the engine's
    assert set(during) == {1}
    assert current == [0]


def test_a_missing_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda:1")
    assert pick_device("cuda") == torch.device("cuda")
    with pytest.raises(us.UserError, match="from cuda:0 to cuda:1, found cuda:2"):
        pick_device("cuda:2")
