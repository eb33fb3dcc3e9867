"""Which GPU is torch's current one while a run is played. There is none here, so that torch's own switch is a note."""

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
    """The devices that were made current and are still in force, the last one counts."""
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


def test_a_gpu_becomes_the_current_one_and_the_callers_comes_back(current: list[int]) -> None:
    with process.on_device(torch.device("cuda:1")):
        assert current[-1] == 1
        with process.on_device(torch.device("cpu")):
            assert current[-1] == 1
    assert current == [0]


@pytest.mark.parametrize("end", ["whole", "cut"])
def test_a_run_is_played_on_its_device_from_the_first_round_to_the_last(
    end: str, current: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, seen = [], []

    def as_on_a_gpu(device: torch.device) -> object:
        asked.append(device)
        return process.on_device(torch.device("cuda:1"))

    def look(phase: str, round: int) -> None:
        seen.append(current[-1])
        if end == "cut" and round == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("unskew.runner.run_experiment.on_device", as_on_a_gpu)
    try:
        toys.play(tmp_path, phase=look)
    except KeyboardInterrupt:
        assert end == "cut"
    assert asked == [torch.device("cpu")]  # the engine's
    assert set(seen) == {1}
    assert current == [0]


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda:1")
    assert pick_device("cuda") == torch.device("cuda")
    with pytest.raises(us.UserError, match="from cuda:0 to cuda:1, found cuda:2"):
        pick_device("cuda:2")
