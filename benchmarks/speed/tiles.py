"""Times of the convolution's kernels by tile, on the shapes of the benchmark's nets: which tile to write into conv.py.

    python benchmarks/speed/tiles.py [--clients 10] [--kinds tf32,half]

A tile that does not fit on a multiprocessor is passed over.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from triton.errors import TritonError

from unskew.engines.stacked.kernels import conv_filter_grad as taps
from unskew.engines.stacked.kernels import conv_matmul
from unskew.engines.stacked.kernels.conv_index import LEAST, TileShape

# Channels in and out, rows of a batch, side of a plane, side of a filter, padding, pooling.
SHAPES = {
    "lmd 1": (3, 32, 50, 32, 5, 2, 2),
    "lmd 2": (32, 64, 50, 16, 5, 2, 2),
    "pfl 1": (3, 32, 10, 32, 3, 0, 1),
    "pfl 2": (32, 64, 10, 30, 3, 0, 2),
}
ROWS, DEPTHS, WARPS, STAGES = (128, 256), (16, 32), (4, 8), (2, 3, 4)


def milliseconds(run: Callable[[], Tensor]) -> float:
    """Median of 5 times 20 calls: one alone would be the host's time."""
    times = []
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(20):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 20)
    return statistics.median(times[1:])


def product(*given: Any) -> Tensor:
    return conv_matmul.multiply(*given)[0]


def passes(clients: int, kind: str) -> Iterator[tuple[str, dict[str, TileShape], Callable[[], Tensor]]]:
    """Name, table of tiles, and call of every product and gradient."""
    dtype = torch.bfloat16 if kind == "half" else torch.float32
    for name, (c, o, rows, side, k, padding, pool) in SHAPES.items():
        x = torch.randn(clients, c, rows, side, side, device="cuda").to(dtype)
        w = torch.randn(clients, o, c, k, k, device="cuda").to(dtype)
        g = torch.randn_like(conv_matmul.multiply(x, w, 1, padding)[0])
        by_tap, after = c >= LEAST, conv_matmul.ConvEpilogue(torch.zeros_like(w[:, :, 0, 0, 0]), True, pool)
        forward = partial(product, x, w, 1, padding, after)
        yield f"{name} forward", conv_matmul.TAPS if by_tap else conv_matmul.FLAT, forward
        if by_tap:
            turned = w.flip(3, 4).transpose(1, 2)
            yield f"{name} into rows", conv_matmul.TAPS, partial(product, g, turned, 1, k - 1 - padding)
        yield f"{name} into filters", taps.FILTERS, partial(taps.filters, x, g, (k, k), 1, padding)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--kinds", default="tf32,half,tf32x3")
    args = parser.parse_args()
    for kind in args.kinds.split(","):
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        for name, table, run in passes(args.clients, kind):
            now, want, found = table[kind], run(), {}
            for tile in {now, *itertools.starmap(TileShape, itertools.product(ROWS, DEPTHS, WARPS, STAGES))}:
                table[kind] = tile
                try:
                    torch.testing.assert_close(run(), want, rtol=0.05, atol=0.05 * float(want.abs().max()))
                    found[tile] = milliseconds(run)
                except (RuntimeError, TritonError):  # more memory or registers than a multiprocessor has
                    continue
            table[kind] = now
            best = ", ".join(f"{tuple(t)} {1000 * found[t]:.0f}" for t in sorted(found, key=found.__getitem__)[:4])
            mine = f"{1000 * found[now]:.0f} us" if now in found else "does not fit"
            sys.stdout.write(f"{kind:5} {name:18} now {tuple(now)} {mine}; best {best}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
