"""Time the convolution kernels with various tiles on the benchmark's shapes, to choose those of conv_matmul.py.

    python benchmarks/speed/tiles.py [--clients 10] [--kinds tf32,half]

Tiles that do not fit on a multiprocessor are skipped.
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

from unskew.engines.stacked.kernels import conv_filter_grad, conv_matmul
from unskew.engines.stacked.kernels.conv_index import MIN_SIDE, TileShape

# Channels in and out, rows of a batch, side of a plane, side of a filter, padding, pooling.
SHAPES = {
    "lmd 1": (3, 32, 50, 32, 5, 2, 2),
    "lmd 2": (32, 64, 50, 16, 5, 2, 2),
    "pfl 1": (3, 32, 10, 32, 3, 0, 1),
    "pfl 2": (32, 64, 10, 30, 3, 0, 2),
}
ROWS, DEPTHS, WARPS, STAGES = (128, 256), (16, 32), (4, 8), (2, 3, 4)


def milliseconds(run: Callable[[], Tensor]) -> float:
    """Median of 5 times 20 calls; the time of a single call would be the host's."""
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


def convolve(*args: Any) -> Tensor:
    return conv_matmul.implicit_matmul(*args)[0]


def passes(clients: int, kind: str) -> Iterator[tuple[str, dict[str, TileShape], Callable[[], Tensor]]]:
    """Name, tile table, and call of every product and gradient."""
    dtype = torch.bfloat16 if kind == "half" else torch.float32
    for name, (c, o, rows, side, k, padding, pool) in SHAPES.items():
        x = torch.randn(clients, c, rows, side, side, device="cuda").to(dtype)
        w = torch.randn(clients, o, c, k, k, device="cuda").to(dtype)
        g = torch.randn_like(conv_matmul.implicit_matmul(x, w, 1, padding)[0])
        by_tap, after = c >= MIN_SIDE, conv_matmul.ConvEpilogue(torch.zeros_like(w[:, :, 0, 0, 0]), True, pool)
        forward = partial(convolve, x, w, 1, padding, after)
        yield f"{name} forward", conv_matmul.TILES_BY_TAP if by_tap else conv_matmul.TILES_FLAT, forward
        if by_tap:
            flipped = w.flip(3, 4).transpose(1, 2)
            yield f"{name} input grad", conv_matmul.TILES_BY_TAP, partial(convolve, g, flipped, 1, k - 1 - padding)
        filter_grad = partial(conv_filter_grad.filter_grad, x, g, (k, k), 1, padding)
        yield f"{name} filter grad", conv_filter_grad.FILTERS, filter_grad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--kinds", default="tf32,half,tf32x3")
    args = parser.parse_args()
    for kind in args.kinds.split(","):
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        for name, table, run in passes(args.clients, kind):
            current, expected, times = table[kind], run(), {}
            for tile in {current, *itertools.starmap(TileShape, itertools.product(ROWS, DEPTHS, WARPS, STAGES))}:
                table[kind] = tile
                try:
                    torch.testing.assert_close(run(), expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))
                    times[tile] = milliseconds(run)
                except (RuntimeError, TritonError):  # more memory or registers than a multiprocessor has
                    continue
            table[kind] = current
            best = ", ".join(f"{tuple(t)} {1000 * times[t]:.0f}" for t in sorted(times, key=times.__getitem__)[:4])
            current_time = f"{1000 * times[current]:.0f} us" if current in times else "does not fit"
            sys.stdout.write(f"{kind:5} {name:18} now {tuple(current)} {current_time}; best {best}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
