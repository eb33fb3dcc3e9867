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

import numpy as np
import pytest
import torch
from torch import Tensor

from unskew.data.augment import Augment
from unskew.data.dataset import InputScaling, preparer
from unskew.engines.stacked import kernels
from unskew.runner.process_setup import precision

TWO = """
import copy, torch
from torch import nn
from torch.func import functional_call, vmap
from unskew.engines.stacked import kernels
from unskew.engines.stacked.fuse import fuse
from unskew.engines.stacked.stacked_layers import for_stack
kernels.available = lambda device: True
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
SGD = """
import torch
from unskew.protocol.optimiser import GradientRule, optimiser_slots
from unskew.protocol.work import Work
from unskew.engines.stacked.kernels import sgd as descending
descending.SMALL = 100
seen = []
kernel = descending.move
descending.move = lambda leaf, *others: (seen.append(leaf), kernel(leaf, *others))
torch.manual_seed(0)
for keys in ({}, {"momentum": 0.9, "weight_decay": 0.1}, {"momentum": 0.9, "nesterov": True}):
    work, rate = Work(batch=1, lr=1.0, **keys), torch.zeros(())
    ours = [torch.randn(2, 3000), torch.randn(2, 40), torch.randn(2, 300).double(), torch.randn(500, 2).T]
    theirs = [t.clone().requires_grad_() for t in ours]
    descent = GradientRule(sgd=descending.descend)
    optimiser = work.make(ours, [optimiser_slots(work, t) for t in ours], rate, descent)
    optimiser._fused, optimiser.lr = True, rate  # as on a GPU
    known = torch.optim.SGD(theirs, 1.0, **keys)
    for lr in (0.1, 0.05, 0.2):
        known.param_groups[0]["lr"] = float(rate.fill_(lr))
        for t in theirs:
            t.grad = torch.randn_like(t)
        optimiser.step(t.grad.clone() for t in theirs)
        known.step()
    torch.testing.assert_close(ours, [t.detach() for t in theirs])
    assert len(seen) == 3 and all(t is ours[0] for t in seen), len(seen)
    seen.clear()
"""
ALONG = """
import torch
from unskew.protocol.optimiser import GradientRule, optimiser_slots
from unskew.protocol.work import Work
from unskew.engines.stacked import kernels
from unskew.engines.stacked.lowrank_grad import Factors
from unskew.engines.stacked.kernels import sgd as descending
from unskew.engines.stacked.linear_grad import product
kernels.available, kernels.LARGE, descending.SMALL = lambda device: True, 1000, 100
seen = []
kernel = descending.follow
descending.follow = lambda leaf, *others: (seen.append(others[2] is not None), kernel(leaf, *others))
torch.manual_seed(0)
for pull in (0.0, 0.1):
    work, rate = Work(batch=1, lr=1.0, momentum=0.9, weight_decay=0.1), torch.tensor(0.05)
    ours = [torch.randn(2, 40, 30).requires_grad_(), torch.randn(2, 3, 40).requires_grad_()]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    known = torch.optim.SGD(theirs, 0.05, momentum=0.9, weight_decay=0.1)
    factors = Factors(ours)
    slots = [optimiser_slots(work, t) for t in ours]
    optimiser = work.make(ours, slots, rate, GradientRule(factors.gradients, descending.descend))
    optimiser._fused, optimiser.lr = True, rate  # as on a GPU
    for _ in range(3):
        x = torch.randn(2, 7, 30)
        with factors.watching():
            hidden = product(x, ours[0], x.dtype).relu()
            loss = product(hidden, ours[1], x.dtype).square().sum() + (pull * ours[0].square().sum() if pull else 0)
        optimiser.step(optimiser.gradients(loss))
        known.zero_grad()
        hidden = torch.bmm(x, theirs[0].transpose(1, 2)).relu()
        (torch.bmm(hidden, theirs[1].transpose(1, 2)).square().sum() + pull * theirs[0].square().sum()).backward()
        known.step()
    torch.testing.assert_close([t.detach() for t in ours], [t.detach() for t in theirs], rtol=1e-3, atol=1e-4)
assert seen == [False] * 3 + [True] * 3, seen
"""
CHECK = Path(__file__).parents[2] / "benchmarks" / "speed" / "kernels.py"


def passes_in_the_interpreter(*words: str) -> None:
    """Python with these words, in a process of its own: Triton reads its mode once."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter cannot count with this NumPy; one before 2.4 runs it")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_kernels_agree_with_pytorch() -> None:
    passes_in_the_interpreter(str(CHECK), "--device", "cpu")


def test_no_file_has_the_name_of_a_function() -> None:
    """Importing the file would put itself in the function's place."""
    here = Path(kernels.__file__)
    functions = re.findall(r"^def (\w+)", here.read_text(), re.M)
    assert functions
    assert not {path.stem for path in here.parent.glob("*.py")} & set(functions)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_net_of_two_convolutions_trains_through_the_kernels() -> None:
    """Both as on a GPU, with a layer in place after rows that are made flat; in Triton's interpreter."""
    passes_in_the_interpreter("-c", TWO)


@pytest.mark.parametrize(("side", "taken"), [(256, True), (257, False), (1025, False)])
def test_a_plane_that_no_program_holds_is_pooled_by_pytorch(
    side: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1025 x 1025 is more than Triton takes at once. The kernel is replaced by a note: it needs a GPU."""
    calls = []

    def note(*given: object) -> Tensor:
        calls.append(given)
        return torch.zeros(())

    pooling = SimpleNamespace(PoolFunction=SimpleNamespace(apply=note))
    monkeypatch.setitem(sys.modules, "unskew.engines.stacked.kernels.pooling", pooling)
    monkeypatch.setattr(kernels, "supported", lambda *_: True)
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
        sys.modules,
        "unskew.engines.stacked.kernels.conv_autograd",
        SimpleNamespace(ConvFunction=SimpleNamespace(apply=note)),
    )
    monkeypatch.setattr(kernels, "supported", lambda *_: True)
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
    """Where windows of 2 x 2 leave no rest and a program holds a plane; else it comes alone."""
    calls: list[tuple[Any, ...]] = []

    def note(*given: Any) -> Tensor:
        calls.append(given[2:])
        x, w = given[:2]
        return torch.nn.functional.conv2d(x[0].transpose(0, 1), w[0], None, 1, 1).transpose(0, 1)[None]

    monkeypatch.setitem(
        sys.modules,
        "unskew.engines.stacked.kernels.conv_autograd",
        SimpleNamespace(ConvFunction=SimpleNamespace(apply=note)),
    )
    monkeypatch.setattr(kernels, "supported", lambda x, *_: len(calls) == 0)
    x, w, bias = torch.randn(1, 2, 3, side, side), torch.randn(1, 4, 2, 3, 3), torch.randn(1, 4)
    out = kernels.convolve(x, w, bias, 1, 1, True, k, True)
    assert calls == [(bias, 1, 1, True, k, True) if joined else (None, 1, 1, False, 1, False)]
    if not joined:
        want = torch.nn.functional.conv2d(x[0].transpose(0, 1), w[0], bias[0], 1, 1).relu()
        torch.testing.assert_close(out[0].transpose(0, 1), torch.nn.functional.max_pool2d(want, k))


def test_tensors_of_an_inner_map_or_derivative_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with Triton: kernels have no rule for them, whichever of a function's tensors it is."""
    monkeypatch.setattr(kernels, "available", lambda device: True)
    plain, seen = torch.ones(2, 3), []

    def look(x: Tensor) -> Tensor:
        seen.append(
            (
                kernels.supported(x),
                kernels.supported(plain, x),
                kernels.supported(plain, None),
                kernels.supported(plain),
            )
        )
        return x.sum()

    torch.func.vmap(look)(plain)
    torch.func.grad(look)(plain)
    assert seen == [(False, False, True, True)] * 2


@pytest.mark.parametrize(
    ("shape", "kind", "known", "to", "taken"),
    [
        ((3, 4, 5), torch.uint8, True, torch.float32, True),
        ((3, 4, 5), torch.float32, True, torch.float32, True),
        ((3, 4, 5), torch.float32, True, torch.float64, False),
        ((3, 4, 5), torch.float64, True, torch.float32, False),
        ((3, 4, 5), torch.uint8, False, torch.float32, False),
        ((7,), torch.float32, True, torch.float32, False),
        ((2, 3), torch.uint8, True, torch.float32, False),
    ],
)
@pytest.mark.parametrize("limit", [2**24, 30])
def test_rows_that_the_kernel_cannot_pick_are_left_to_pytorch(
    shape: tuple[int, ...],
    kind: torch.dtype,
    known: bool,
    to: torch.dtype,
    taken: bool,
    limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No images, other numbers, a function that is not ours, an image too large. The kernel, for a GPU, is a note."""
    calls: list[tuple[Any, ...]] = []

    def note(x: Tensor, index: Tensor, augment: Augment, draw: dict[str, Tensor], prepare: InputScaling) -> Tensor:
        calls.append((augment, draw))
        return prepare(x[index])

    monkeypatch.setitem(sys.modules, "unskew.engines.stacked.kernels.gather_augment", SimpleNamespace(pick=note))
    monkeypatch.setattr(kernels, "available", lambda device: True)
    monkeypatch.setattr(kernels, "IMAGE", limit)
    x, index = torch.randint(256, (9, *shape)).to(kind), torch.tensor([2, 2, 8, 0])
    one = [0.5] * shape[0]
    ours = preparer(one, one, shape, torch.device("cpu"), to)
    prepare = ours if known else lambda x: ours(x)
    out = kernels.gather_rows(x, index, Augment(), {}, prepare, to)
    assert (out.shape, out.dtype) == ((4, *shape), to)
    assert calls == ([(Augment(), {})] if taken and limit > 30 else [])
    assert torch.equal(out, ours(x[index]))


def test_rows_without_a_kernel_are_augmented_and_prepared() -> None:
    augment = Augment(crop=1, flip=True, cutout=2)
    x, index = torch.randint(256, (9, 3, 6, 6)).byte(), torch.tensor([5, 1, 5])
    draw = {name: t[0] for name, t in augment.draw(np.random.default_rng(0), 1, 3, (3, 6, 6)).items()}
    prepare = InputScaling(None, None, torch.float32)
    out = kernels.gather_rows(x, index, augment, draw, prepare, torch.float64)
    assert out.dtype == torch.float64
    assert torch.equal(out, augment.apply(x[index], draw, prepare).double())


@pytest.mark.parametrize("lacks", ["", "Failed to find C compiler. Please specify via CC environment variable."])
def test_a_machine_on_which_triton_builds_nothing_goes_on_without(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_up(*_: object) -> None:
        if lacks:
            raise RuntimeError(lacks)

    monkeypatch.setitem(sys.modules, "unskew.engines.stacked.kernels.sum_messages", SimpleNamespace(add_up=add_up))
    kernels.builds.cache_clear()
    with pytest.warns(UserWarning, match="C compiler") if lacks else contextlib.nullcontext():
        assert kernels.builds(torch.device("cpu")) is not bool(lacks)
    kernels.builds.cache_clear()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_an_optimiser_with_the_kernel_is_that_of_torch() -> None:
    """It takes the large leaf in float32; a small, a wider and a turned one go on with PyTorch's function."""
    passes_in_the_interpreter("-c", SGD)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_large_layer_is_moved_along_its_factors() -> None:
    """Two layers, of which the first is large; the second time something else pulls at it, too."""
    passes_in_the_interpreter("-c", ALONG)


def test_leaves_are_moved_by_a_kernel_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(descend=lambda *_: None)
    monkeypatch.setitem(sys.modules, "unskew.engines.stacked.kernels.sgd", kernel)
    assert kernels.sgd_kernel(torch.device("cpu")) is None
    monkeypatch.setattr(kernels, "available", lambda device: True)
    assert kernels.sgd_kernel(torch.device("cpu")) is kernel.descend


def values() -> dict[str, tuple[Tensor, Tensor, bool]]:
    """Places, values, and whether the kernel takes them."""
    return {
        "floats": (torch.zeros(3, 4, 5), torch.randn(4, 5), True),
        "whole": (torch.zeros(3, dtype=torch.int64), torch.tensor(7), True),
        "own": (torch.zeros(3, 3), torch.randn(3, 3), False),
        "wider": (torch.zeros(3, 4).double(), torch.randn(4).double(), False),
        "other": (torch.zeros(3, 4).bfloat16(), torch.randn(4), False),
        "turned": (torch.zeros(4, 3).T, torch.randn(4), False),
    }


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", values())
def test_a_value_is_written_to_every_client(name: str, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, which is a note here, where it can; else by PyTorch."""
    (place, value, taken), calls = values()[name], list[Any]()
    monkeypatch.setitem(
        sys.modules,
        "unskew.engines.stacked.kernels.broadcast",
        SimpleNamespace(write=lambda *given: calls.append(given)),
    )
    monkeypatch.setattr(kernels, "LAUNCH", 0)
    monkeypatch.setattr(kernels, "available", lambda device: there)
    kernels.broadcast_to_clients([place], [value])
    assert len(calls) == (taken and there)
    assert calls or torch.equal(place, value.to(place.dtype).expand(place.shape))


def test_a_small_value_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "available", lambda device: True)
    place = torch.zeros(3, 4)
    kernels.broadcast_to_clients([place], [torch.ones(4)])
    assert place.sum() == 12


@pytest.mark.parametrize(
    ("kind", "rows", "limit", "tf32", "splits", "taken"),
    [
        (torch.float32, 5, 12, False, True, True),
        (torch.float32, 5, 12, False, False, False),
        (torch.float32, 5, 12, True, True, False),
        (torch.float32, 65, 12, False, True, False),
        (torch.float32, 5, 13, False, True, False),
        (torch.float64, 5, 12, False, True, False),
        (torch.bfloat16, 5, 12, False, True, False),
    ],
)
def test_products_that_wait_for_their_weights_are_ours_in_float32(
    kind: torch.dtype, rows: int, limit: int, tf32: bool, splits: bool, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel, for a GPU, is a note."""
    calls = []

    def note(*given: Tensor) -> Tensor:
        calls.append(given)
        return torch.bmm(given[0], given[1].transpose(1, 2))

    monkeypatch.setitem(sys.modules, "unskew.engines.stacked.kernels.matmul_fp32", SimpleNamespace(product=note))
    monkeypatch.setattr(kernels, "has_tf32", lambda: splits)
    monkeypatch.setattr(kernels, "available", lambda device: True)
    monkeypatch.setattr(kernels, "LARGE", limit)
    x, w = torch.randn(2, rows, 4).to(kind), torch.randn(2, 3, 4).to(kind)
    with precision("tf32" if tf32 else "float32"):
        torch.testing.assert_close(kernels.matmul(x, w), torch.bmm(x, w.transpose(1, 2)))
    assert len(calls) == taken
