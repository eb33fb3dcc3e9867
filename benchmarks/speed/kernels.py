"""Compare every kernel with PyTorch in float64, forward and backward; exit code 1 if one is off.

python benchmarks/speed/kernels.py                                  # on a GPU, in each precision
TRITON_INTERPRET=1 python benchmarks/speed/kernels.py --device cpu  # in Triton's interpreter
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.core.sums import Sum
from unskew.engine.kernels import bands, plain
from unskew.engine.kernels.adding import add_up
from unskew.engine.kernels.convolution import Convolve
from unskew.engine.kernels.masks import Drop
from unskew.engine.kernels.norm import Normalise
from unskew.engine.kernels.planes import Depthwise
from unskew.engine.kernels.pooling import Pool
from unskew.engine.kernels.scaling import scaled

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
]
# m, c, b, side, o, kernel, padding; cut, pool, flat
JOINED = [
    ((2, 3, 3, 8, 8, 5, 2), True, 2, False),
    ((1, 17, 4, 8, 20, 3, 0), True, 2, True),
    ((2, 3, 5, 6, 40, 3, 1), False, 2, True),
    ((2, 16, 2, 7, 5, 3, 0), True, 1, True),
    ((2, 4, 2, 5, 70, 3, 1), False, 1, False),
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


def far(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm().clamp_min(1e-9))


def cases(device: str, dtype: torch.dtype) -> dict[str, float]:
    """Every kernel on small shapes that touch its borders."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    found = {}
    for m, c, b, high, wide, o, k, stride, padding in DENSE:
        tensors = [normal(m, c, b, high, wide), normal(m, o, c, k, k)]
        found[f"convolve {c}x{high}x{wide} k{k} s{stride}"] = apart(
            lambda x, w, s=stride, p=padding: Convolve.apply(x, w, None, s, p, False, 1, False),
            lambda x, w, s=stride, p=padding: dense(x, w, s, p),
            tensors,
        )
    for (m, c, b, side, o, k, padding), cut, pool, flat in JOINED:
        found[f"convolve {c}x{side}x{side} k{k} then pool {pool}"] = apart(
            lambda x, w, a, p=padding, z=cut, n=pool, f=flat: back(Convolve.apply(x, w, a, 1, p, z, n, f), f),
            lambda x, w, a, p=padding, z=cut, n=pool: plain.pool(dense(x, w, 1, p), a, 1, z, n),
            # Small whole numbers, exact in every precision: so the largest of a window is the same one, the first.
            [torch.randint(-1, 2, shape, device=device).to(dtype)
             for shape in ((m, c, b, side, side), (m, o, c, k, k), (m, o))],
        )  # fmt: skip
    for k, stride in ((3, 1), (3, 2), (5, 1)):
        found[f"depthwise k{k} s{stride}"] = apart(
            lambda x, w, s=stride: Depthwise.apply(x, w, s, 1),
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
    for side, k, cut, channel in (
        (8, 2, True, 1),
        (14, 2, True, 2),
        (9, 2, False, 2),
        (9, 3, True, 2),
        (11, 3, True, 1),
        (6, 1, True, 1),
    ):
        found[f"pool {side} k{k} axis {channel}"] = apart(
            lambda x, b, c=channel, z=cut, n=k: back(Pool.apply(x, b, c, z, n, z), z),
            # In the same precision: which number is the largest must be decided among the same ones.
            lambda x, b, c=channel, z=cut, n=k: plain.pool(x.to(dtype), b.to(dtype), c, z, n).double(),
            [normal(4, 3, 3, side, side), normal(4, 3)],
        )
    for n, cut in ((500, True), (40000, False), (40000, True)):
        rows = [3 + normal(3, n), torch.randn(3, device=device), torch.randn(3, device=device)]
        found[f"normalise {n}{' cut' if cut else ''}"] = apart(
            lambda x, g, s, z=cut: Normalise.apply(x, g, s, 1e-5, z)[0],
            lambda x, g, s, z=cut: plain.normalise(x, g, s, 1e-5, z)[0],
            rows,
        )
    seeds = torch.tensor([5, 2**31 - 1], device=device)
    found["drop"] = apart(lambda x: Drop.apply(x, seeds, 0.3), lambda x: plain.drop(x, seeds, 0.3), [normal(2, 3, 700)])
    found["messages added up"] = sums_apart(device, dtype)
    return found


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
        ours.add(message, rows)
        theirs.add(message, rows)
    ours.finish(mean=True)
    return 0.0 if all(torch.equal(ours.total[k], theirs.total[k]) for k in ours.total) else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    precisions = ("float32",) if args.device == "cpu" else ("float32", "tf32", "bf16")
    off = 0
    for precision in precisions:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        for name, distance in cases(args.device, torch.bfloat16 if precision == "bf16" else torch.float32).items():
            bad = not distance < WANTED[precision]
            off += bad
            sys.stdout.write(f"{precision:8} {name:24} {distance:.1e}{'  OFF' if bad else ''}\n")
    sys.exit(1 if off else 0)


if __name__ == "__main__":
    main()
