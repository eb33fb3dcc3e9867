"""Gathers the rows of a batch by index and augments them in one pass: crop, flip, normalise, cutout.

PyTorch takes about 25 launches for it, with index tensors eight times as large as the rows: 1990 us for 20,000 images
of CIFAR-10's size, which take 101 here (H200); it was 4 to 8 % of a round of `lmd-shards-100` and `lmd-shards-10`.

Results equal PyTorch's to the last bit. A byte has only 256 results in a channel, so PyTorch prepares a table of them:
on a GPU it divides by 255 with a rounded reciprocal, on a CPU it does not, and half of the results differ.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.data.augment import Augment
from unskew.data.dataset import InputScaling

BLOCK = 512  # positions per program; their sources are computed once for all channels, and a thread writes 16 bytes


@triton.jit
def _gather_and_augment(
    x, index, offset, flip, hole, byte_table, mean, std, out,
    ROW, CROP, CUTOUT,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    CHANNEL: tl.constexpr, LINE: tl.constexpr, COLUMN: tl.constexpr,
    SHIFTED: tl.constexpr, CUT: tl.constexpr, BYTES: tl.constexpr, SCALED: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BN positions of each channel of one row; the zeros around a raw image are prepared like its pixels."""
    at = tl.program_id(1) * BN + tl.arange(0, BN)
    line, column, inside = at // W, at % W, at < H * W
    source_line, source_column, in_image = line, column, inside
    # Offsets of rows have 64 bits: a data set may have more than 2^31 numbers.
    row = tl.program_id(0).to(tl.int64)
    if SHIFTED:
        mirrored = tl.where(tl.load(flip + row), W - 1 - column, column)
        source_line = line + (tl.load(offset + 2 * row).to(tl.int32) - CROP)
        source_column = mirrored + (tl.load(offset + 2 * row + 1).to(tl.int32) - CROP)
        in_image = inside & (source_line >= 0) & (source_line < H) & (source_column >= 0) & (source_column < W)
    if CUT:
        down = line - (tl.load(hole + 2 * row).to(tl.int32) - CUTOUT // 2)
        right = column - (tl.load(hole + 2 * row + 1).to(tl.int32) - CUTOUT // 2)
        blank = (down >= 0) & (down < CUTOUT) & (right >= 0) & (right < CUTOUT)
    start = x + tl.load(index + row) * ROW
    destination = out + row * (C * H * W)
    for channel in range(C):
        raw = tl.load(start + (channel * CHANNEL + source_line * LINE + source_column * COLUMN), mask=in_image, other=0)
        if BYTES:
            new = tl.load(byte_table + channel * 256 + raw.to(tl.int32))
        elif SCALED:
            # Triton's `/` is not rounded like PyTorch's division.
            new = tl.div_rn(raw - tl.load(mean + channel), tl.load(std + channel)).to(out.dtype.element_ty)
        else:
            new = raw.to(out.dtype.element_ty)
        if CUT:
            new = tl.where(blank, new * 0.0, new)  # a product like PyTorch's: negative numbers become -0.0
        tl.store(destination + at, new, mask=inside)
        destination += H * W


def gather_and_augment(
    x: Tensor, index: Tensor, augment: Augment, draw: dict[str, Tensor], prepare: InputScaling
) -> Tensor:
    """`augment.apply(x[index], draw, prepare)`, or without draws `prepare(x[index])`; x is uint8 or float32."""
    c, h, w = x.shape[1:]
    out = torch.empty(len(index), c, h, w, dtype=prepare.dtype, device=x.device)
    block = min(BLOCK, triton.next_power_of_2(h * w))
    grid = (len(index), triton.cdiv(h * w, block))
    drawn = [draw[name].contiguous() if draw else index for name in ("offset", "flip", "hole")]
    byte_table = prepared_bytes(prepare, c, x.device) if x.dtype == torch.uint8 else x
    scale = [x if t is None else t for t in (prepare.mean, prepare.std)]
    cropped, cut = bool(draw and (augment.crop or augment.flip)), bool(draw and augment.cutout)
    if len(index):
        _gather_and_augment[grid](
            x, index.contiguous(), *drawn, byte_table, *scale, out,
            x.stride(0), augment.crop, augment.cutout,
            c, h, w, *x.stride()[1:], cropped, cut, x.dtype == torch.uint8, prepare.mean is not None, block,
        )  # fmt: skip
    return out


@lru_cache(maxsize=8)  # a run needs one
def prepared_bytes(prepare: InputScaling, channels: int, device: torch.device) -> Tensor:
    """The result of `prepare` for each byte, [channels, 256]."""
    all_bytes = torch.arange(256, dtype=torch.uint8, device=device)
    return prepare(all_bytes.expand(1, channels, 1, 256).contiguous()).view(channels, 256)
