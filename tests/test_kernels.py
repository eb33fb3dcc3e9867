"""Which function takes a cohort; the kernels against PyTorch, in Triton's interpreter where Triton is installed."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from unskew.engine import kernels

TWO = """
import copy, torch
from torch import nn
from torch.func import functional_call, vmap
from unskew.engine import kernels
from unskew.engine.fuse import fuse
from unskew.engine.layers import for_stack
kernels.there_are = lambda device: True
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3), nn.Flatten(),
                    nn.ReLU(inplace=True), nn.Linear(20, 2))
state = {k: torch.randn(2, *t.shape).requires_grad_() for k, t in net.named_parameters()}
x = torch.randn(2, 3, 3, 8, 8)
stacked = fuse(for_stack(nn.Sequential(copy.deepcopy(net))))
ours = vmap(lambda s, r: functional_call(stacked, {f"0.{k}": t for k, t in s.items()}, (r,)))(state, x)
theirs = torch.stack([functional_call(net, {k: t[i] for k, t in state.items()}, (x[i],)) for i in range(2)])
for a, b in zip(*(torch.autograd.grad(out.square().sum(), list(state.values())) for out in (ours, theirs))):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)
"""
CHECK = Path(__file__).parent.parent / "benchmarks" / "speed" / "kernels.py"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_kernels_agree_with_pytorch() -> None:
    """In a process of its own: Triton reads its mode once."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(CHECK), "--device", "cpu"], env=environment, capture_output=True, text=True
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter cannot count with this NumPy; one before 2.4 runs it")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_has_the_name_of_a_function() -> None:
    """Importing the file would put itself in the function's place."""
    here = Path(kernels.__file__)
    functions = re.findall(r"^def (\w+)", here.read_text(), re.M)
    assert functions
    assert not {path.stem for path in here.parent.glob("*.py")} & set(functions)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_net_of_two_convolutions_trains_through_the_kernels() -> None:
    """Both as on a GPU, with a layer in place after rows that are made flat; in Triton's interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", TWO], env=environment, capture_output=True, text=True)
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter cannot count with this NumPy; one before 2.4 runs it")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("side", "taken"), [(256, True), (257, False), (1025, False)])
def test_a_plane_that_no_program_holds_is_pooled_by_pytorch(
    side: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1025 x 1025 is more than Triton takes at once. The kernel is replaced by a note: it needs a GPU."""
    calls = []

    def note(*given: object) -> Tensor:
        calls.append(given)
        return torch.zeros(())

    pooling = SimpleNamespace(Pool=SimpleNamespace(apply=note))
    monkeypatch.setitem(sys.modules, "unskew.engine.kernels.pooling", pooling)
    monkeypatch.setattr(kernels, "ours", lambda *_: True)
    x, bias = torch.randn(1, 1, 2, side, side), torch.randn(1, 1)
    out = kernels.pool(x, bias, 1, True, 2)
    assert len(calls) == taken
    if not taken:
        torch.testing.assert_close(out[0], torch.nn.functional.max_pool2d((x[0] + bias[0]).relu(), 2))


@pytest.mark.parametrize(
    ("sides", "padding", "limit", "taken"),
    [
        ((15, 15), 7, 2**31, True),
        ((17, 17), 8, 2**31, False),
        ((3, 3), 16, 2**31, False),
        ((3, 3), 1, 4 * 3 * 11 * 11, False),
        ((3, 5), 1, 2**31, False),
    ],
)
def test_convolutions_that_the_kernels_cannot_do_are_left_to_pytorch(
    sides: tuple[int, int], padding: int, limit: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More lines than bits, more numbers than 32 bits count, sides that differ. The kernel, for a GPU, is a note."""
    calls = []
    monkeypatch.setattr(kernels, "NUMBERS", limit)

    def note(*given: object) -> Tensor:
        calls.append(given)
        return torch.zeros(())

    monkeypatch.setitem(
        sys.modules, "unskew.engine.kernels.convolution", SimpleNamespace(Convolve=SimpleNamespace(apply=note))
    )
    monkeypatch.setattr(kernels, "ours", lambda *_: True)
    x, w = torch.randn(1, 2, 3, 9, 9), torch.randn(1, 4, 2, *sides)
    out = kernels.convolve(x, w, None, 1, padding, False, 1, False)
    assert len(calls) == taken
    if not taken:
        want = torch.nn.functional.conv2d(x[0].transpose(0, 1), w[0], None, 1, padding).transpose(0, 1)
        torch.testing.assert_close(out[0], want)


@pytest.mark.parametrize(
    ("side", "k", "joined"), [(8, 2, True), (9, 2, False), (9, 3, False), (9, 1, True), (258, 2, False)]
)
def test_what_comes_after_a_convolution_goes_into_its_kernel(
    side: int, k: int, joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where windows of 2 x 2 leave no rest and a program holds a plane; else the kernel convolves alone."""
    calls: list[tuple[Any, ...]] = []

    def note(*given: Any) -> Tensor:
        calls.append(given[2:])
        x, w = given[:2]
        return torch.nn.functional.conv2d(x[0].transpose(0, 1), w[0], None, 1, 1).transpose(0, 1)[None]

    monkeypatch.setitem(
        sys.modules, "unskew.engine.kernels.convolution", SimpleNamespace(Convolve=SimpleNamespace(apply=note))
    )
    monkeypatch.setattr(kernels, "ours", lambda x, *_: len(calls) == 0)
    x, w, bias = torch.randn(1, 2, 3, side, side), torch.randn(1, 4, 2, 3, 3), torch.randn(1, 4)
    out = kernels.convolve(x, w, bias, 1, 1, True, k, True)
    assert calls == [(bias, 1, 1, True, k, True) if joined else (None, 1, 1, False, 1, False)]
    if not joined:
        want = torch.nn.functional.conv2d(x[0].transpose(0, 1), w[0], bias[0], 1, 1).relu()
        torch.testing.assert_close(out[0].transpose(0, 1), torch.nn.functional.max_pool2d(want, k))


def test_tensors_of_an_inner_map_or_derivative_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with Triton: kernels have no rule for them, whichever of a function's tensors it is."""
    monkeypatch.setattr(kernels, "there_are", lambda device: True)
    plain, seen = torch.ones(2, 3), []

    def look(x: Tensor) -> Tensor:
        seen.append((kernels.ours(x), kernels.ours(plain, x), kernels.ours(plain, None), kernels.ours(plain)))
        return x.sum()

    torch.func.vmap(look)(plain)
    torch.func.grad(look)(plain)
    assert seen == [(False, False, True, True)] * 2


@pytest.mark.parametrize("lacks", ["", "Failed to find C compiler. Please specify via CC environment variable."])
def test_a_machine_on_which_triton_builds_nothing_goes_on_without(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_up(*_: object) -> None:
        if lacks:
            raise RuntimeError(lacks)

    monkeypatch.setitem(sys.modules, "unskew.engine.kernels.adding", SimpleNamespace(add_up=add_up))
    kernels.builds.cache_clear()
    with pytest.warns(UserWarning, match="C compiler") if lacks else contextlib.nullcontext():
        assert kernels.builds(torch.device("cpu")) is not bool(lacks)
    kernels.builds.cache_clear()
