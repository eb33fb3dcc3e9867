"""Compare every kernel with PyTorch in float64, forward and backward; exit code 1 if one is off.

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
from moved import DESCENTS, FOLLOWED, descent_apart, far, follow_apart

from unskew.data.augment import Augment
from unskew.data.dataset import preparer
from unskew.engines.stacked.kernels import depthwise_banded as bands
from unskew.engines.stacked.kernels import reference as plain
from unskew.engines.stacked.kernels.batchnorm_eval import scaled
from unskew.engines.stacked.kernels.batchnorm_train import BatchNormFunction
from unskew.engines.stacked.kernels.broadcast import write
from unskew.engines.stacked.kernels.conv_autograd import ConvFunction
from unskew.engines.stacked.kernels.depthwise_conv import DepthwiseFunction
from unskew.engines.stacked.kernels.dropout import DropoutFunction
from unskew.engines.stacked.kernels.gather_augment import pick
from unskew.engines.stacked.kernels.matmul_fp32 import product
from unskew.engines.stacked.kernels.pooling import PoolFunction
from unskew.engines.stacked.kernels.sum_messages import add_up
from unskew.server.sums import Sum

# m, c, b, height, width, o, kernel, stride, padding
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
# m, c, b, side, o, kernel, padding; relu, pool, flat
JOINED = [
    ((2, 3, 3, 8, 8, 5, 2), True, 2, False),
    ((1, 17, 4, 8, 20, 3, 0), True, 2, True),
    ((2, 3, 5, 6, 40, 3, 1), False, 2, True),
    ((2, 16, 2, 7, 5, 3, 0), True, 1, True),
    ((2, 4, 2, 5, 70, 3, 1), False, 1, False),
]
# shape of a row; crop, flip, cutout; bytes, whether mean and deviation are known, how rows lie
PICKED = [
    ((3, 32, 32), (4, True, 8), True, True, "whole"),
    ((3, 32, 32), (0, False, 0), True, True, "whole"),
    ((3, 32, 32), (0, False, 0), True, True, "pixels"),
    ((3, 9, 11), (2, True, 5), True, True, "whole"),
    ((3, 9, 11), (12, True, 3), False, True, "pixels"),
    ((1, 28, 28), (0, True, 0), True, False, "whole"),
    ((2, 7, 5), (3, False, 4), False, False, "whole"),
    ((5, 40, 30), (0, False, 31), False, True, "whole"),
    ((1, 1, 3), (1, True, 1), True, True, "whole"),
    ((3, 8, 8), (0, False, 0), False, False, "whole"),
]
WANTED = {"float32": 3e-6, "tf32": 3e-3, "bf16": 1e-2}


def dense(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    rows = (F.conv2d(x[i].transpose(0, 1), w[i], None, stride, padding).transpose(0, 1) for i in range(len(x)))
    return torch.stack(list(rows))


def back(t: Tensor, turned: bool) -> Tensor:
    return t.transpose(1, 2) if turned else t


def apart(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], tensors: list[Tensor]) -> float:
    """Largest relative distance of the output and the gradients."""
    mine, exact = [t.clone().requires_grad_() for t in tensors], [t.double().requires_grad_() for t in tensors]
    out, want = ours(*mine), theirs(*exact)
    back = torch.randn_like(out)
    grads = zip(torch.autograd.grad(out, mine, back), torch.autograd.grad(want, exact, back.double()))
    pairs = [(out.detach(), want.detach()), *grads]
    # Not Python's max, which passes over a NaN.
    return float(torch.tensor([far(a, b) for a, b in pairs]).max())


def cases(device: str, dtype: torch.dtype) -> dict[str, float]:
    """Every kernel on small shapes that touch its borders."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    found = {}
    for m, c, b, high, wide, o, k, stride, padding in DENSE:
        tensors = [normal(m, c, b, high, wide), normal(m, o, c, k, k)]
        found[f"convolve {c}x{high}x{wide} k{k} s{stride}"] = apart(
            lambda x, w, s=stride, p=padding: ConvFunction.apply(x, w, None, s, p, False, 1, False),
            lambda x, w, s=stride, p=padding: dense(x, w, s, p),
            tensors,
        )
    for (m, c, b, side, o, k, padding), relu, pool, flat in JOINED:
        found[f"convolve {c}x{side}x{side} k{k} then pool {pool}"] = apart(
            lambda x, w, a, p=padding, z=relu, n=pool, f=flat: back(ConvFunction.apply(x, w, a, 1, p, z, n, f), f),
            lambda x, w, a, p=padding, z=relu, n=pool: plain.pool(dense(x, w, 1, p), a, 1, z, n),
            # Small whole numbers, exact in every precision: so the largest of a window is the same one, the first.
            [torch.randint(-1, 2, shape, device=device).to(dtype)
             for shape in ((m, c, b, side, side), (m, o, c, k, k), (m, o))],
        )  # fmt: skip
    for c, k in ((3, 5), (20, 5)):  # a teacher's: one set of filters, which learns nothing
        w, bias = torch.randint(-1, 2, (1, 8, c, k, k), device=device).to(dtype), normal(3, 8).round()
        found[f"convolve {c}x8x8 k{k} shared"] = apart(
            lambda x, w=w, a=bias: ConvFunction.apply(x, w, a, 1, 2, True, 2, False),
            lambda x, w=w, a=bias: plain.pool(
                dense(x, w.double().expand(3, -1, -1, -1, -1), 1, 2), a.double(), 1, True, 2
            ),
            [torch.randint(-1, 2, (3, c, 2, 8, 8), device=device).to(dtype)],
        )
    for k, stride in ((3, 1), (3, 2), (5, 1)):
        found[f"depthwise k{k} s{stride}"] = apart(
            lambda x, w, s=stride: DepthwiseFunction.apply(x, w, s, 1),
            lambda x, w, s=stride: F.conv2d(x.transpose(0, 1), w[:, None], None, s, 1, groups=6).transpose(0, 1),
            [normal(6, 3, 9, 9), normal(6, k, k)],
        )
    for planes in ((3, 2, 32, 32), (4, 5, 8, 8), (2, 7, 4, 4), (2, 3, 4, 8)):
        x, w = normal(*planes), normal(planes[0], 3, 3)
        if device != "cpu" and not bands.fit(x, w, 1, 1):
            continue
        found["bands " + "x".join(map(str, planes))] = far(
            bands.filtered(x, w), plain.depthwise(x.double(), w.double(), 1, 1)
        )
    for channel in (1, 2):
        x, given = normal(2, 3, 3, 5, 5), torch.randn(3, 2, 3, device=device)
        found[f"scale axis {channel}"] = far(
            scaled(x, *given, channel, True), plain.scale(x.double(), *given, channel, True)
        )
    for side, k, relu, channel in (
        (8, 2, True, 1),
        (14, 2, True, 2),
        (9, 2, False, 2),
        (9, 3, True, 2),
        (11, 3, True, 1),
        (6, 1, True, 1),
    ):
        found[f"pool {side} k{k} axis {channel}"] = apart(
            lambda x, b, c=channel, z=relu, n=k: back(PoolFunction.apply(x, b, c, z, n, z), z),
            # In the same precision: which number is the largest must be decided among the same ones.
            lambda x, b, c=channel, z=relu, n=k: plain.pool(x.to(dtype), b.to(dtype), c, z, n).double(),
            [normal(4, 3, 3, side, side), normal(4, 3)],
        )
    for n, relu in ((500, True), (40000, False), (40000, True)):
        rows = [3 + normal(3, n), torch.randn(3, device=device), torch.randn(3, device=device)]
        found[f"normalise {n}{' relu' if relu else ''}"] = apart(
            lambda x, g, s, z=relu: BatchNormFunction.apply(x, g, s, 1e-5, z)[0],
            lambda x, g, s, z=relu: plain.normalise(x, g, s, 1e-5, z)[0],
            rows,
        )
    seeds = torch.tensor([5, 2**31 - 1], device=device)
    found["drop"] = apart(
        lambda x: DropoutFunction.apply(x, seeds, 0.3), lambda x: plain.drop(x, seeds, 0.3), [normal(2, 3, 700)]
    )
    found["messages added up"] = sums_apart(device, dtype)
    for m, n in ((1, 1), (9, 700), (8, 4096), (17, 4100)):
        found[f"spread {n} to {m}"] = spread_apart(device, dtype, m, n)
    for decay, momentum, nesterov in DESCENTS:
        name = f"descent {decay:g} {momentum:g}{' nesterov' if nesterov else ''}"
        found[name] = descent_apart(device, decay, momentum, nesterov)
        for m, b, o, i in FOLLOWED:
            found[f"{name} along {b}x{o}x{i}"] = follow_apart(device, dtype, (m, b, o, i), decay, momentum, nesterov)
    for m, b, o, i in FOLLOWED if dtype == torch.float32 else ():
        tensors = [normal(m, b, i), normal(m, o, i)]
        exact = torch.bmm(tensors[0].double(), tensors[1].double().transpose(1, 2))
        found[f"rows times weights {b}x{o}x{i}"] = far(product(*tensors), exact)
    for shape, options, *rest in PICKED:
        how = "x".join(map(str, shape)) + " " + " ".join(str(int(option)) for option in options)
        found[f"rows {how} {rest}"] = rows_apart(device, dtype, shape, Augment(*options), *rest)
    return found


def rows_apart(
    device: str, dtype: torch.dtype, shape: tuple[int, int, int], augment: Augment, raw: bool, known: bool, lie: str
) -> float:
    """Rows picked, augmented and prepared by the kernel: PyTorch's numbers to the last bit (-0.0 is 0.0), or 1."""
    x = torch.randint(256, (40, *shape), device=device).byte() if raw else torch.randn(40, *shape, device=device)
    if lie == "pixels":  # channels innermost
        x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    mean, std = (torch.rand(shape[0]) + 0.1).tolist(), (torch.rand(shape[0]) + 0.1).tolist()
    prepare = preparer(mean if known else None, std if known else None, shape, torch.device(device), dtype)
    clients, batch = 3, 7
    index = torch.randint(40, (clients, 2 * batch), device=device)[:, ::2].flatten()
    drawn = augment.draw(np.random.default_rng(0), clients, 2 * batch, shape) if augment else {}
    draw = {name: t.to(device)[:, :batch].flatten(0, 1) for name, t in drawn.items()}
    want = augment.apply(x[index], draw, prepare) if draw else prepare(x[index])
    return 0.0 if torch.equal(pick(x, index, augment, draw, prepare), want) else 1.0


def sums_apart(device: str, dtype: torch.dtype) -> float:
    """The mean of three clients' messages, added up at once, against one by one: the same numbers, or 1."""
    messages = [
        # So different in size that float64 tells another order by its rounding.
        {
            k: (t * scale).to(dtype)
            for k, t in (("w", torch.randn(30, 70, device=device).T), ("b", torch.randn(7, device=device)))
        }
        for scale in (1.0, 1e12, 1e-4)
    ]
    ours, theirs = (Sum.like("update", messages[0], how) for how in (add_up, None))
    for rows, message in zip((12.0, 2731.0, 500.0), messages):
        for each in (ours, theirs):
            each.add_rows({k: t[None] for k, t in message.items()}, [0], [rows])
    stacked = Sum.like("update", messages[0], add_up)
    stacked.add_rows(
        {k: torch.stack([m[k] for m in reversed(messages)]) for k in "bw"}, [2, 1, 0], [12.0, 2731.0, 500.0]
    )
    sums = [each.finish(mean=True) and each.total for each in (ours, stacked)]
    return 0.0 if all(torch.equal(total[k], theirs.total[k]) for total in sums for k in total) else 1.0


def spread_apart(device: str, dtype: torch.dtype, m: int, n: int) -> float:
    """A value written to m clients and not beyond them: the same numbers, or 1."""
    same = True
    for kind in (dtype, torch.float16, torch.int64):
        value, memory = torch.randn(n, device=device).mul(100).to(kind), torch.zeros(m + 1, n, device=device).to(kind)
        write(memory[:m], value)
        same &= torch.equal(memory, torch.cat([value.expand(m, n), torch.zeros_like(memory[:1])]))
    return 0.0 if same else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precisions", help="some of float32,tf32,bf16; all of them on a GPU")
    args = parser.parse_args()
    torch.manual_seed(0)
    asked = args.precisions or ("float32" if args.device == "cpu" else "float32,tf32,bf16")
    off = 0
    for precision in asked.split(","):
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        for name, distance in cases(args.device, torch.bfloat16 if precision == "bf16" else torch.float32).items():
            bad = not distance < WANTED[precision]
            off += bad
            sys.stdout.write(f"{precision:8} {name:24} {distance:.1e}{'  OFF' if bad else ''}\n")
    sys.exit(1 if off else 0)


if __name__ == "__main__":
    main()
