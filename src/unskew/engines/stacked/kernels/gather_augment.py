"""Rows of a batch in one pass: picked by their index, cropped, mirrored, prepared, and blanked where cutout says.

PyTorch takes about 25 launches for it, through indices eight times as large as the rows: 1990 us for 20,000 images of
CIFAR-10's size, which take 101 here (H200); it was 4 to 8 % of a round of `lmd-shards-100` and `lmd-shards-10`.

The numbers are PyTorch's to the last bit. A byte has only 256 outcomes in a channel, so those are prepared by PyTorch
and looked up: on a GPU it divides by 255 through a rounded reciprocal, on a CPU it does not, and half of them differ.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.data.augment import Augment
from unskew.data.dataset import InputScaling

BLOCK = 512  # places of a program, whose origins serve all channels; a thread writes 16 bytes of each


@triton.jit
def _pick(
    x, index, offset, flip, hole, outcome, centre, width, out,
    ROW, CROP, CUTOUT,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    CHANNEL: tl.constexpr, LINE: tl.constexpr, COLUMN: tl.constexpr,
    MOVED: tl.constexpr, CUT: tl.constexpr, BYTES: tl.constexpr, SCALED: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A row of the batch, BN places of each channel; zeros around a raw image are prepared as its pixels are."""
    at = tl.program_id(1) * BN + tl.arange(0, BN)
    line, column, there = at // W, at % W, at < H * W
    from_line, from_column, seen = line, column, there
    # Starts of rows in 64 bits: there may be more than 2^31 numbers before them.
    row = tl.program_id(0).to(tl.int64)
    if MOVED:
        mirrored = tl.where(tl.load(flip + row), W - 1 - column, column)
        from_line = line + (tl.load(offset + 2 * row).to(tl.int32) - CROP)
        from_column = mirrored + (tl.load(offset + 2 * row + 1).to(tl.int32) - CROP)
        seen = there & (from_line >= 0) & (from_line < H) & (from_column >= 0) & (from_column < W)
    if CUT:
        down = line - (tl.load(hole + 2 * row).to(tl.int32) - CUTOUT // 2)
        right = column - (tl.load(hole + 2 * row + 1).to(tl.int32) - CUTOUT // 2)
        blank = (down >= 0) & (down < CUTOUT) & (right >= 0) & (right < CUTOUT)
    start = x + tl.load(index + row) * ROW
    to = out + row * (C * H * W)
    for channel in range(C):
        raw = tl.load(start + (channel * CHANNEL + from_line * LINE + from_column * COLUMN), mask=seen, other=0)
        if BYTES:
            new = tl.load(outcome + channel * 256 + raw.to(tl.int32))
        elif SCALED:
            # Triton's own division is not rounded as PyTorch's.
            new = tl.div_rn(raw - tl.load(centre + channel), tl.load(width + channel)).to(out.dtype.element_ty)
        else:
            new = raw.to(out.dtype.element_ty)
        if CUT:
            new = tl.where(blank, new * 0.0, new)  # a product as PyTorch's, which leaves -0.0 of what is negative
        tl.store(to + at, new, mask=there)
        to += H * W


def pick(x: Tensor, index: Tensor, augment: Augment, draw: dict[str, Tensor], prepare: InputScaling) -> Tensor:
    """`augment.apply(x[index], draw, prepare)`, or without draws `prepare(x[index])`; x is uint8 or float32."""
    c, h, w = x.shape[1:]
    out = torch.empty(len(index), c, h, w, dtype=prepare.dtype, device=x.device)
    places = min(BLOCK, triton.next_power_of_2(h * w))
    grid = (len(index), triton.cdiv(h * w, places))
    drawn = [draw[name].contiguous() if draw else index for name in ("offset", "flip", "hole")]
    outcome = outcomes(prepare, c, x.device) if x.dtype == torch.uint8 else x
    scale = [x if t is None else t for t in (prepare.centre, prepare.width)]
    moved, cut = bool(draw and (augment.crop or augment.flip)), bool(draw and augment.cutout)
    if len(index):
        _pick[grid](
            x, index.contiguous(), *drawn, outcome, *scale, out,
            x.stride(0), augment.crop, augment.cutout,
            c, h, w, *x.stride()[1:], moved, cut, x.dtype == torch.uint8, prepare.centre is not None, places,
        )  # fmt: skip
    return out


@lru_cache(maxsize=8)  # a run has one
def outcomes(prepare: InputScaling, channels: int, device: torch.device) -> Tensor:
    """[channels, 256] what `prepare` makes of each byte."""
    every = torch.arange(256, dtype=torch.uint8, device=device)
    return prepare(every.expand(1, channels, 1, 256).contiguous()).view(channels, 256)
