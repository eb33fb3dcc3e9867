"""Compare every kernel with PyTorch in float64, forward and backward; exit code 1 if a distance is too large.

python benchmarks/speed/kernels.py                                  # on a GPU, in each precision
TRITON_INTERPRET=1 python benchmarks/speed/kernels.py --device cpu  # in Triton's interpreter
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from sgd_checks import LOWRANK_SHAPES, SGD_CASES, relative_distance, sgd_distance, sgd_lowrank_distance

from unskew.data.augment import Augment
from unskew.data.dataset import input_scaling
from unskew.engines.stacked.kernels import depthwise_banded, reference
from unskew.engines.stacked.kernels.batchnorm_eval import batchnorm_eval
from unskew.engines.stacked.kernels.batchnorm_train import BatchNormFunction
from unskew.engines.stacked.kernels.broadcast import broadcast_tensor
from unskew.engines.stacked.kernels.conv_autograd import ConvFunction
from unskew.engines.stacked.kernels.depthwise_conv import DepthwiseFunction
from unskew.engines.stacked.kernels.dropout import DropoutFunction
from unskew.engines.stacked.kernels.gather_augment import gather_and_augment
from unskew.engines.stacked.kernels.matmul_fp32 import matmul_fp32
from unskew.engines.stacked.kernels.pooling import PoolFunction
from unskew.engines.stacked.kernels.sum_messages import add_up
from unskew.server.sums import Sum

# clients m, input channels c, rows b, height, width, output channels o, kernel, stride, padding
DENSE = [
    (2, 3, 4, 8, 8, 8, 5, 1, 2),
    (3, 5, 2, 9, 9, 20, 3, 2, 1),
    (2, 32, 3, 6, 6, 70, 3, 1, 1),
    (1, 4, 2, 8, 8, 4, 5, 1, 0),
    (2, 17, 3, 5, 12, 8, 3, 2, 1),
    (1, 3, 2, 12, 12, 4, 7, 2, 3),
    (2, 16, 2, 8, 8, 16, 1, 2, 0),
    (2, 40, 2, 6, 6, 33, 2, 1, 1),
    (1, 2, 1, 17, 16, 3, 15, 1, 15),
    (2, 32, 3, 8, 8, 32, 5, 1, 2),
]
# (m, c, b, side, o, kernel, padding), then relu, pool, flat
FUSED = [
    ((2, 3, 3, 8, 8, 5, 2), True, 2, False),
    ((1, 17, 4, 8, 20, 3, 0), True, 2, True),
    ((2, 3, 5, 6, 40, 3, 1), False, 2, True),
    ((2, 16, 2, 7, 5, 3, 0), True, 1, True),
    ((2, 4, 2, 5, 70, 3, 1), False, 1, False),
]
# shape of a row; crop, flip, cutout; whether rows are bytes, whether they are standardised, memory layout
GATHERED = [
    ((3, 32, 32), (4, True, 8), True, True, "channels first"),
    ((3, 32, 32), (0, False, 0), True, True, "channels first"),
    ((3, 32, 32), (0, False, 0), True, True, "channels last"),
    ((3, 9, 11), (2, True, 5), True, True, "channels first"),
    ((3, 9, 11), (12, True, 3), False, True, "channels last"),
    ((1, 28, 28), (0, True, 0), True, False, "channels first"),
    ((2, 7, 5), (3, False, 4), False, False, "channels first"),
    ((5, 40, 30), (0, False, 31), False, True, "channels first"),
    ((1, 1, 3), (1, True, 1), True, True, "channels first"),
    ((3, 8, 8), (0, False, 0), False, False, "channels first"),
]
TOLERANCE = {"float32": 3e-6, "tf32": 3e-3, "bf16": 1e-2}


def dense(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    rows = (F.conv2d(x[i].transpose(0, 1), w[i], None, stride, padding).transpose(0, 1) for i in range(len(x)))
    return torch.stack(list(rows))


def undo_flat(t: Tensor, flat: bool) -> Tensor:
    return t.transpose(1, 2) if flat else t


def compare_gradients(
    function: Callable[..., Tensor], reference_function: Callable[..., Tensor], tensors: list[Tensor]
) -> float:
    """Largest relative distance of the output and the gradients."""
    inputs, exact = [t.clone().requires_grad_() for t in tensors], [t.double().requires_grad_() for t in tensors]
    out, expected = function(*inputs), reference_function(*exact)
    grad_output = torch.randn_like(out)
    exact_grads = torch.autograd.grad(expected, exact, grad_output.double())
    grads = zip(torch.autograd.grad(out, inputs, grad_output), exact_grads)
    pairs = [(out.detach(), expected.detach()), *grads]
    # Not Python's max, which ignores NaN.
    return float(torch.tensor([relative_distance(a, b) for a, b in pairs]).max())


def cases(device: str, dtype: torch.dtype) -> dict[str, float]:
    """Every kernel on small shapes that cover its edge cases."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    distances = {}
    for m, c, b, height, width, o, k, stride, padding in DENSE:
        tensors = [normal(m, c, b, height, width), normal(m, o, c, k, k)]
        distances[f"convolve {c}x{height}x{width} k{k} s{stride}"] = compare_gradients(
            lambda x, w, s=stride, p=padding: ConvFunction.apply(x, w, None, s, p, False, 1, False),
            lambda x, w, s=stride, p=padding: dense(x, w, s, p),
            tensors,
        )
    for (m, c, b, side, o, k, padding), relu, pool, flat in FUSED:
        distances[f"convolve {c}x{side}x{side} k{k} then pool {pool}"] = compare_gradients(
            lambda x, w, a, p=padding, z=relu, n=pool, f=flat: undo_flat(ConvFunction.apply(x, w, a, 1, p, z, n, f), f),
            lambda x, w, a, p=padding, z=relu, n=pool: reference.pool(dense(x, w, 1, p), a, 1, z, n),
            # Small integers, exact in every precision, so that the argmax of a window is the same, the first.
            [torch.randint(-1, 2, shape, device=device).to(dtype)
             for shape in ((m, c, b, side, side), (m, o, c, k, k), (m, o))],
        )  # fmt: skip
    for c, k in ((3, 5), (20, 5)):  # like a teacher: shared filters without a gradient
        w, bias = torch.randint(-1, 2, (1, 8, c, k, k), device=device).to(dtype), normal(3, 8).round()
        distances[f"convolve {c}x8x8 k{k} shared"] = compare_gradients(
            lambda x, w=w, a=bias: ConvFunction.apply(x, w, a, 1, 2, True, 2, False),
            lambda x, w=w, a=bias: reference.pool(
                dense(x, w.double().expand(3, -1, -1, -1, -1), 1, 2), a.double(), 1, True, 2
            ),
            [torch.randint(-1, 2, (3, c, 2, 8, 8), device=device).to(dtype)],
        )
    for k, stride in ((3, 1), (3, 2), (5, 1)):
        distances[f"depthwise k{k} s{stride}"] = compare_gradients(
            lambda x, w, s=stride: DepthwiseFunction.apply(x, w, s, 1),
            lambda x, w, s=stride: F.conv2d(x.transpose(0, 1), w[:, None], None, s, 1, groups=6).transpose(0, 1),
            [normal(6, 3, 9, 9), normal(6, k, k)],
        )
    for planes in ((3, 2, 32, 32), (4, 5, 8, 8), (2, 7, 4, 4), (2, 3, 4, 8)):
        x, w = normal(*planes), normal(planes[0], 3, 3)
        if device != "cpu" and not depthwise_banded.supports(x, w, 1, 1):
            continue
        distances["depthwise banded " + "x".join(map(str, planes))] = relative_distance(
            depthwise_banded.depthwise_3x3(x, w), reference.depthwise(x.double(), w.double(), 1, 1)
        )
    for channel in (1, 2):
        x, statistics = normal(2, 3, 3, 5, 5), torch.randn(3, 2, 3, device=device)
        distances[f"scale axis {channel}"] = relative_distance(
            batchnorm_eval(x, *statistics, channel, True), reference.scale(x.double(), *statistics, channel, True)
        )
    for side, k, relu, channel in (
        (8, 2, True, 1),
        (14, 2, True, 2),
        (9, 2, False, 2),
        (9, 3, True, 2),
        (11, 3, True, 1),
        (6, 1, True, 1),
    ):
        distances[f"pool {side} k{k} axis {channel}"] = compare_gradients(
            lambda x, b, c=channel, z=relu, n=k: undo_flat(PoolFunction.apply(x, b, c, z, n, z), z),
            # In the same precision, because the argmax depends on the rounded numbers.
            lambda x, b, c=channel, z=relu, n=k: reference.pool(x.to(dtype), b.to(dtype), c, z, n).double(),
            [normal(4, 3, 3, side, side), normal(4, 3)],
        )
    for n, relu in ((500, True), (40000, False), (40000, True)):
        rows = [3 + normal(3, n), torch.randn(3, device=device), torch.randn(3, device=device)]
        distances[f"normalise {n}{' relu' if relu else ''}"] = compare_gradients(
            lambda x, g, s, z=relu: BatchNormFunction.apply(x, g, s, 1e-5, z)[0],
            lambda x, g, s, z=relu: reference.normalise(x, g, s, 1e-5, z)[0],
            rows,
        )
    seeds = torch.tensor([5, 2**31 - 1], device=device)
    distances["dropout"] = compare_gradients(
        lambda x: DropoutFunction.apply(x, seeds, 0.3), lambda x: reference.dropout(x, seeds, 0.3), [normal(2, 3, 700)]
    )
    distances["sum of messages"] = sums_distance(device, dtype)
    for m, n in ((1, 1), (9, 700), (8, 4096), (17, 4100)):
        distances[f"broadcast {n} to {m}"] = broadcast_distance(device, dtype, m, n)
    for decay, momentum, nesterov in SGD_CASES:
        name = f"sgd {decay:g} {momentum:g}{' nesterov' if nesterov else ''}"
        distances[name] = sgd_distance(device, decay, momentum, nesterov)
        for m, b, o, i in LOWRANK_SHAPES:
            distances[f"{name} lowrank {b}x{o}x{i}"] = sgd_lowrank_distance(
                device, dtype, (m, b, o, i), decay, momentum, nesterov
            )
    for m, b, o, i in LOWRANK_SHAPES if dtype == torch.float32 else ():
        tensors = [normal(m, b, i), normal(m, o, i)]
        exact = torch.bmm(tensors[0].double(), tensors[1].double().transpose(1, 2))
        distances[f"matmul {b}x{o}x{i}"] = relative_distance(matmul_fp32(*tensors), exact)
    for shape, options, *rest in GATHERED:
        label = "x".join(map(str, shape)) + " " + " ".join(str(int(option)) for option in options)
        distances[f"gather {label} {rest}"] = gather_distance(device, dtype, shape, Augment(*options), *rest)
    return distances


def gather_distance(
    device: str,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    augment: Augment,
    raw: bool,
    standardised: bool,
    layout: str,
) -> float:
    """0 if rows gathered, augmented and prepared by the kernel equal PyTorch's bit by bit (-0.0 is 0.0), else 1."""
    x = torch.randint(256, (40, *shape), device=device).byte() if raw else torch.randn(40, *shape, device=device)
    if layout == "channels last":
        x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    mean, std = (torch.rand(shape[0]) + 0.1).tolist(), (torch.rand(shape[0]) + 0.1).tolist()
    statistics = (mean, std) if standardised else (None, None)
    prepare = input_scaling(*statistics, shape, torch.device(device), dtype)
    clients, batch = 3, 7
    index = torch.randint(40, (clients, 2 * batch), device=device)[:, ::2].flatten()
    drawn = augment.draw(np.random.default_rng(0), clients, 2 * batch, shape) if augment else {}
    draw = {name: t.to(device)[:, :batch].flatten(0, 1) for name, t in drawn.items()}
    expected = augment.apply(x[index], draw, prepare) if draw else prepare(x[index])
    return 0.0 if torch.equal(gather_and_augment(x, index, augment, draw, prepare), expected) else 1.0


def sums_distance(device: str, dtype: torch.dtype) -> float:
    """0 if the mean of three clients' messages is the same added up at once as one by one, else 1."""
    messages = [
        # Of such different magnitudes that adding in another order would change the rounding in float64.
        {
            k: (t * scale).to(dtype)
            for k, t in (("w", torch.randn(30, 70, device=device).T), ("b", torch.randn(7, device=device)))
        }
        for scale in (1.0, 1e12, 1e-4)
    ]
    by_kernel, one_by_one = (Sum.like("update", messages[0], add_up_or_none) for add_up_or_none in (add_up, None))
    for rows, message in zip((12.0, 2731.0, 500.0), messages):
        for total in (by_kernel, one_by_one):
            total.add_rows({k: t[None] for k, t in message.items()}, [0], [rows])
    stacked = Sum.like("update", messages[0], add_up)
    stacked.add_rows(
        {k: torch.stack([m[k] for m in reversed(messages)]) for k in "bw"}, [2, 1, 0], [12.0, 2731.0, 500.0]
    )
    sums = [total.finish(mean=True) and total.total for total in (by_kernel, stacked)]
    return 0.0 if all(torch.equal(total[k], one_by_one.total[k]) for total in sums for k in total) else 1.0


def broadcast_distance(device: str, dtype: torch.dtype, m: int, n: int) -> float:
    """0 if a value is written correctly to m clients and nothing after them, else 1."""
    same = True
    for kind in (dtype, torch.float16, torch.int64):
        value, memory = torch.randn(n, device=device).mul(100).to(kind), torch.zeros(m + 1, n, device=device).to(kind)
        broadcast_tensor(memory[:m], value)
        same &= torch.equal(memory, torch.cat([value.expand(m, n), torch.zeros_like(memory[:1])]))
    return 0.0 if same else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precisions", help="some of float32,tf32,bf16 (default: all on a GPU, float32 on a CPU)")
    args = parser.parse_args()
    torch.manual_seed(0)
    precisions = args.precisions or ("float32" if args.device == "cpu" else "float32,tf32,bf16")
    failures = 0
    for precision in precisions.split(","):
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        for name, distance in cases(args.device, torch.bfloat16 if precision == "bf16" else torch.float32).items():
            failed = not distance < TOLERANCE[precision]  # also NaN
            failures += failed
            sys.stdout.write(f"{precision:8} {name:24} {distance:.1e}{'  FAILED' if failed else ''}\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
