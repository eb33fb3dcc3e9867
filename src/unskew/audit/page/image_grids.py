"""Images as they were and as they came back: a column per image, a row per run and attack, PSNR under each."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unskew.audit.leak import Pictures
from unskew.audit.metrics.psnr import psnr
from unskew.audit.page.metric_titles import RECOGNISABLE
from unskew.audit.page.page_input import label

MOST = 8  # columns


@dataclass(frozen=True)
class GridImage:
    """A picture, and how close it came."""

    picture: str  # address that holds the data
    text: str = ""
    back: bool = False


@dataclass(frozen=True)
class GridRow:
    """A row of pictures under a run's and an attack's name."""

    label: str
    attack: str
    cells: tuple[GridImage, ...]


@dataclass(frozen=True)
class ImageGrid:
    """The same images under several attacks."""

    dataset: str
    note: str
    heads: tuple[str, ...]
    true: tuple[GridImage, ...]
    lines: tuple[GridRow, ...]


def grids(pictures: Sequence[Pictures]) -> list[ImageGrid]:
    """One grid for all pictures of the same images."""
    groups: list[list[Pictures]] = []
    for one in pictures:
        same = next((g for g in groups if _alike(g[0], one)), None)
        if same is None:
            groups.append([one])
        else:
            same.append(one)
    return [_grid(group) for group in groups]


def _alike(a: Pictures, b: Pictures) -> bool:
    return a.dataset == b.dataset and a.images == b.images and torch.equal(a.true, b.true)


def _grid(group: list[Pictures]) -> ImageGrid:
    first = group[0]
    scores = [psnr(p.true, p.recovered, "unit", 1.0).values for p in group]
    shown = _shown(torch.stack(scores).amax(0))
    total = len(first.images)
    note = f"{total} image{'s' if total > 1 else ''}."
    if len(shown) < total:
        note = f"{len(shown)} of {total} images, evenly from the closest to the farthest by the strongest attack."
    lines = [
        GridRow(label(p.method, p.defence), p.attack, tuple(_cell(p.recovered[i], float(s[i])) for i in shown))
        for p, s in zip(group, scores)
    ]
    heads = tuple(f"#{first.images[i]}" for i in shown)
    return ImageGrid(first.dataset, note, heads, tuple(GridImage(_png(first.true[i])) for i in shown), tuple(lines))


def _shown(top: Tensor) -> list[int]:
    """Which images: all, or some from the best to the worst, so that nobody picks the pretty ones."""
    order = top.argsort(descending=True, stable=True).tolist()
    if len(order) <= MOST:
        return [int(i) for i in order]
    return [int(order[round(i)]) for i in np.linspace(0, len(order) - 1, MOST)]


def _cell(image: Tensor, score: float) -> GridImage:
    return GridImage(_png(image), f"{score:.1f} dB", score >= RECOGNISABLE)


def _png(image: Tensor) -> str:
    """[C, H, W] in [0, 1] as an address with the picture in it; other numbers of channels are shown by their mean."""
    pixels = (image.detach().cpu().float().nan_to_num(0.5).clamp(0, 1) * 255).round().to(torch.uint8)
    grey = pixels.float().mean(0).round().to(torch.uint8).numpy()
    shown = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy() if len(pixels) == 3 else grey)
    buffer = BytesIO()
    shown.save(buffer, format="png")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
