"""When kernels are used; and kernels against PyTorch in Triton's interpreter, if Triton is installed."""

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
from unskew.data.dataset import InputScaling, input_scaling
from unskew.engines.stacked import kernels
from unskew.runner.process_setup import precision

TWO_CONVOLUTIONS = """
import copy, torch
from torch import nn
from torch.func import functional_call, vmap
from unskew.engines.stacked import kernels
from unskew.engines.stacked.fuse import fuse
from unskew.engines.stacked.stacked_layers import use_stacked_layers
kernels.available = lambda device: True
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3), nn.Flatten(),
                    nn.ReLU(inplace=True), nn.Linear(20, 2))
state = {k: torch.randn(2, *t.shape).requires_grad_() for k, t in net.named_parameters()}
x = torch.randn(2, 3, 3, 8, 8)
stacked = fuse(use_stacked_layers(nn.Sequential(copy.deepcopy(net))))
out = vmap(lambda s, r: functional_call(stacked, {f"0.{k}": t for k, t in s.items()}, (r,)))(state, x)
expected = torch.stack([functional_call(net, {k: t[i] for k, t in state.items()}, (x[i],)) for i in range(2)])
for a, b in zip(*(torch.autograd.grad(y.square().sum(), list(state.values())) for y in (out, expected))):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)
"""
SGD = """
import torch
from unskew.protocol.optimiser import GradientRule, optimiser_slots
from unskew.protocol.work import Work
from unskew.engines.stacked.kernels import sgd
sgd.SMALL_LEAF = 100
updated = []
kernel = sgd.sgd_step
sgd.sgd_step = lambda leaf, *others: (updated.append(leaf), kernel(leaf, *others))
torch.manual_seed(0)
for keys in ({}, {"momentum": 0.9, "weight_decay": 0.1}, {"momentum": 0.9, "nesterov": True}):
    work, rate = Work(batch=1, lr=1.0, **keys), torch.zeros(())
    leaves = [torch.randn(2, 3000), torch.randn(2, 40), torch.randn(2, 300).double(), torch.randn(500, 2).T]
    expected = [t.clone().requires_grad_() for t in leaves]
    rule = GradientRule(sgd=sgd.sgd_update)
    optimiser = work.make_optimiser(leaves, [optimiser_slots(work, t) for t in leaves], rate, rule)
    optimiser._fused, optimiser.lr = True, rate  # as on a GPU
    reference = torch.optim.SGD(expected, 1.0, **keys)
    for lr in (0.1, 0.05, 0.2):
        reference.param_groups[0]["lr"] = float(rate.fill_(lr))
        for t in expected:
            t.grad = torch.randn_like(t)
        optimiser.step(t.grad.clone() for t in expected)
        reference.step()
    torch.testing.assert_close(leaves, [t.detach() for t in expected])
    assert len(updated) == 3 and all(t is leaves[0] for t in updated), len(updated)
    updated.clear()
"""
SGD_LOWRANK = """
import torch
from unskew.protocol.optimiser import GradientRule, optimiser_slots
from unskew.protocol.work import Work
from unskew.engines.stacked import kernels
from unskew.engines.stacked.lowrank_grad import LowRankCapture
from unskew.engines.stacked.kernels import sgd
from unskew.engines.stacked.stacked_linear import stacked_linear
kernels.available, kernels.MEMORY_BOUND_WEIGHTS, sgd.SMALL_LEAF = lambda device: True, 1000, 100
has_extra = []
kernel = sgd.sgd_lowrank_step
sgd.sgd_lowrank_step = lambda leaf, *others: (has_extra.append(others[2] is not None), kernel(leaf, *others))
torch.manual_seed(0)
for penalty in (0.0, 0.1):
    work, rate = Work(batch=1, lr=1.0, momentum=0.9, weight_decay=0.1), torch.tensor(0.05)
    leaves = [torch.randn(2, 40, 30).requires_grad_(), torch.randn(2, 3, 40).requires_grad_()]
    expected = [t.detach().clone().requires_grad_() for t in leaves]
    reference = torch.optim.SGD(expected, 0.05, momentum=0.9, weight_decay=0.1)
    capture = LowRankCapture(leaves)
    slots = [optimiser_slots(work, t) for t in leaves]
    optimiser = work.make_optimiser(leaves, slots, rate, GradientRule(capture.gradients, sgd.sgd_update))
    optimiser._fused, optimiser.lr = True, rate  # as on a GPU
    for _ in range(3):
        x = torch.randn(2, 7, 30)
        with capture.capturing():
            hidden = stacked_linear(x, leaves[0], x.dtype).relu()
            loss = stacked_linear(hidden, leaves[1], x.dtype).square().sum()
            loss = loss + (penalty * leaves[0].square().sum() if penalty else 0)
        optimiser.step(optimiser.gradients(loss))
        reference.zero_grad()
        hidden = torch.bmm(x, expected[0].transpose(1, 2)).relu()
        loss = torch.bmm(hidden, expected[1].transpose(1, 2)).square().sum()
        (loss + penalty * expected[0].square().sum()).backward()
        reference.step()
    torch.testing.assert_close([t.detach() for t in leaves], [t.detach() for t in expected], rtol=1e-3, atol=1e-4)
assert has_extra == [False] * 3 + [True] * 3, has_extra
"""
KERNEL_CHECK = Path(__file__).parents[2] / "benchmarks" / "speed" / "kernels.py"


def run_in_interpreter(*words: str) -> None:
    """Run Python with these arguments in a separate process, because Triton reads its mode only once."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter needs NumPy < 2.4")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_kernels_agree_with_pytorch() -> None:
    run_in_interpreter(str(KERNEL_CHECK), "--device", "cpu")


def test_no_file_is_named_like_a_function() -> None:
    """Importing the submodule would replace the function of the same name in the package."""
    init_file = Path(kernels.__file__)
    functions = re.findall(r"^def (\w+)", init_file.read_text(), re.M)
    assert functions
    assert not {path.stem for path in init_file.parent.glob("*.py")} & set(functions)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_net_of_two_convolutions_trains_with_the_kernels() -> None:
    """As on a GPU, with an in-place layer after a flatten; in Triton's interpreter."""
    run_in_interpreter("-c", TWO_CONVOLUTIONS)


@pytest.mark.parametrize(("side", "taken"), [(256, True), (257, False), (1025, False)])
def test_planes_too_large_for_a_program_are_pooled_by_pytorch(
    side: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1025 x 1025 is more than Triton's limit. A fake replaces the kernel, which needs a GPU."""
    calls = []

    def fake(*given: object) -> Tensor:
        calls.append(given)
        return torch.zeros(())

    pooling = SimpleNamespace(PoolFunction=SimpleNamespace(apply=fake))
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
def test_unsupported_convolutions_are_left_to_pytorch(
    sides: tuple[int, int], padding: int, limit: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More lines than bits, more numbers than 32 bits can index, unequal sides. A fake replaces the GPU kernel."""
    calls = []
    monkeypatch.setattr(kernels, "MAX_NUMBERS", limit)

    def fake(*given: object) -> Tensor:
        calls.append(given)
        return torch.zeros(())

    monkeypatch.setitem(
        sys.modules,
        "unskew.engines.stacked.kernels.conv_autograd",
        SimpleNamespace(ConvFunction=SimpleNamespace(apply=fake)),
    )
    monkeypatch.setattr(kernels, "supported", lambda *_: True)
    x, w = torch.randn(1, 2, 3, 9, 9), torch.randn(1, 4, 2, *sides)
    out = kernels.convolve(x, w, None, 1, padding, False, 1, False)
    assert len(calls) == taken
    if not taken:
        expected = torch.nn.functional.conv2d(x[0].transpose(0, 1), w[0], None, 1, padding).transpose(0, 1)
        torch.testing.assert_close(out[0], expected)


@pytest.mark.parametrize(
    ("side", "k", "fused"), [(8, 2, True), (9, 2, False), (9, 3, False), (9, 1, True), (258, 2, False)]
)
def test_bias_relu_and_pooling_are_fused_into_the_convolution(
    side: int, k: int, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If 2 x 2 windows divide the plane and a program can hold it; otherwise they run separately."""
    calls: list[tuple[Any, ...]] = []

    def fake(*given: Any) -> Tensor:
        calls.append(given[2:])
        x, w = given[:2]
        return torch.nn.functional.conv2d(x[0].transpose(0, 1), w[0], None, 1, 1).transpose(0, 1)[None]

    monkeypatch.setitem(
        sys.modules,
        "unskew.engines.stacked.kernels.conv_autograd",
        SimpleNamespace(ConvFunction=SimpleNamespace(apply=fake)),
    )
    monkeypatch.setattr(kernels, "supported", lambda x, *_: len(calls) == 0)
    x, w, bias = torch.randn(1, 2, 3, side, side), torch.randn(1, 4, 2, 3, 3), torch.randn(1, 4)
    out = kernels.convolve(x, w, bias, 1, 1, True, k, True)
    assert calls == [(bias, 1, 1, True, k, True) if fused else (None, 1, 1, False, 1, False)]
    if not fused:
        unpooled = torch.nn.functional.conv2d(x[0].transpose(0, 1), w[0], bias[0], 1, 1).relu()
        torch.testing.assert_close(out[0].transpose(0, 1), torch.nn.functional.max_pool2d(unpooled, k))


def test_tensors_inside_vmap_or_grad_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with Triton: kernels have no rule for wrapped tensors, whichever argument is wrapped."""
    monkeypatch.setattr(kernels, "available", lambda device: True)
    plain, answers = torch.ones(2, 3), []

    def ask(x: Tensor) -> Tensor:
        answers.append([kernels.supported(*tensors) for tensors in ((x,), (plain, x), (plain, None), (plain,))])
        return x.sum()

    torch.func.vmap(ask)(plain)
    torch.func.grad(ask)(plain)
    assert answers == [[False, False, True, True]] * 2


@pytest.mark.parametrize(
    ("shape", "dtype", "is_scaling", "to", "taken"),
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
def test_unsupported_rows_are_gathered_by_pytorch(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    is_scaling: bool,
    to: torch.dtype,
    taken: bool,
    limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No images, other dtypes, a custom preparation, an image too large. A fake replaces the GPU kernel."""
    calls: list[tuple[Any, ...]] = []

    def fake(x: Tensor, index: Tensor, augment: Augment, draw: dict[str, Tensor], prepare: InputScaling) -> Tensor:
        calls.append((augment, draw))
        return prepare(x[index])

    monkeypatch.setitem(
        sys.modules, "unskew.engines.stacked.kernels.gather_augment", SimpleNamespace(gather_and_augment=fake)
    )
    monkeypatch.setattr(kernels, "available", lambda device: True)
    monkeypatch.setattr(kernels, "MAX_IMAGE", limit)
    x, index = torch.randint(256, (9, *shape)).to(dtype), torch.tensor([2, 2, 8, 0])
    one = [0.5] * shape[0]
    scaling = input_scaling(one, one, shape, torch.device("cpu"), to)
    prepare = scaling if is_scaling else lambda x: scaling(x)
    out = kernels.gather_rows(x, index, Augment(), {}, prepare, to)
    assert (out.shape, out.dtype) == ((4, *shape), to)
    assert calls == ([(Augment(), {})] if taken and limit > 30 else [])
    assert torch.equal(out, scaling(x[index]))


def test_rows_without_a_kernel_are_augmented_and_prepared() -> None:
    augment = Augment(crop=1, flip=True, cutout=2)
    x, index = torch.randint(256, (9, 3, 6, 6)).byte(), torch.tensor([5, 1, 5])
    draw = {name: t[0] for name, t in augment.draw(np.random.default_rng(0), 1, 3, (3, 6, 6)).items()}
    prepare = InputScaling(None, None, torch.float32)
    out = kernels.gather_rows(x, index, augment, draw, prepare, torch.float64)
    assert out.dtype == torch.float64
    assert torch.equal(out, augment.apply(x[index], draw, prepare).double())


@pytest.mark.parametrize("problem", ["", "Failed to find C compiler. Please specify via CC environment variable."])
def test_training_continues_if_triton_cannot_compile(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_up(*_: object) -> None:
        if problem:
            raise RuntimeError(problem)

    monkeypatch.setitem(sys.modules, "unskew.engines.stacked.kernels.sum_messages", SimpleNamespace(add_up=add_up))
    kernels.triton_works.cache_clear()
    with pytest.warns(UserWarning, match="C compiler") if problem else contextlib.nullcontext():
        assert kernels.triton_works(torch.device("cpu")) is not bool(problem)
    kernels.triton_works.cache_clear()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_the_optimiser_with_the_kernel_equals_torchs() -> None:
    """The kernel updates the large float32 leaf; PyTorch a small, a float64 and a transposed one."""
    run_in_interpreter("-c", SGD)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_large_layer_is_updated_with_its_lowrank_gradient() -> None:
    """Two layers, of which the first is large; in the second pass a penalty adds a dense gradient."""
    run_in_interpreter("-c", SGD_LOWRANK)


def test_sgd_uses_the_kernel_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(sgd_update=lambda *_: None)
    monkeypatch.setitem(sys.modules, "unskew.engines.stacked.kernels.sgd", kernel)
    assert kernels.sgd_kernel(torch.device("cpu")) is None
    monkeypatch.setattr(kernels, "available", lambda device: True)
    assert kernels.sgd_kernel(torch.device("cpu")) is kernel.sgd_update


def broadcast_cases() -> dict[str, tuple[Tensor, Tensor, bool]]:
    """Targets, values, and whether the kernel supports them."""
    return {
        "floats": (torch.zeros(3, 4, 5), torch.randn(4, 5), True),
        "integer": (torch.zeros(3, dtype=torch.int64), torch.tensor(7), True),
        "one value per client": (torch.zeros(3, 3), torch.randn(3, 3), False),
        "float64": (torch.zeros(3, 4).double(), torch.randn(4).double(), False),
        "other dtype": (torch.zeros(3, 4).bfloat16(), torch.randn(4), False),
        "transposed": (torch.zeros(4, 3).T, torch.randn(4), False),
    }


@pytest.mark.parametrize("has_kernels", [True, False])
@pytest.mark.parametrize("name", broadcast_cases())
def test_a_value_is_broadcast_to_every_client(name: str, has_kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, here a fake, if it supports them; otherwise by PyTorch."""
    (target, value, taken), calls = broadcast_cases()[name], list[Any]()
    monkeypatch.setitem(
        sys.modules,
        "unskew.engines.stacked.kernels.broadcast",
        SimpleNamespace(broadcast_tensor=lambda *given: calls.append(given)),
    )
    monkeypatch.setattr(kernels, "MIN_LAUNCH_BYTES", 0)
    monkeypatch.setattr(kernels, "available", lambda device: has_kernels)
    kernels.broadcast_to_clients([target], [value])
    assert len(calls) == (taken and has_kernels)
    assert calls or torch.equal(target, value.to(target.dtype).expand(target.shape))


def test_a_small_value_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "available", lambda device: True)
    target = torch.zeros(3, 4)
    kernels.broadcast_to_clients([target], [torch.ones(4)])
    assert target.sum() == 12


@pytest.mark.parametrize(
    ("dtype", "rows", "limit", "tf32", "has_tf32", "taken"),
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
def test_memory_bound_float32_products_use_the_kernel(
    dtype: torch.dtype, rows: int, limit: int, tf32: bool, has_tf32: bool, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake replaces the GPU kernel."""
    calls = []

    def fake(*given: Tensor) -> Tensor:
        calls.append(given)
        return torch.bmm(given[0], given[1].transpose(1, 2))

    monkeypatch.setitem(sys.modules, "unskew.engines.stacked.kernels.matmul_fp32", SimpleNamespace(matmul_fp32=fake))
    monkeypatch.setattr(kernels, "has_tf32", lambda: has_tf32)
    monkeypatch.setattr(kernels, "available", lambda device: True)
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", limit)
    x, w = torch.randn(2, rows, 4).to(dtype), torch.randn(2, 3, 4).to(dtype)
    with precision("tf32" if tf32 else "float32"):
        torch.testing.assert_close(kernels.matmul(x, w), torch.bmm(x, w.transpose(1, 2)))
    assert len(calls) == taken
