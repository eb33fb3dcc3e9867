"""Grids of true and recovered images: a column per image, a row per run and attack, PSNR below each image."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unskew.audits.leak import Pictures
from unskew.audits.metrics.psnr import psnr
from unskew.audits.page.metric_titles import RECOGNISABLE
from unskew.audits.page.page_input import label

MAX_COLUMNS = 8


@dataclass(frozen=True)
class GridImage:
    """One image of a grid, with its PSNR if it is a recovered one."""

    picture: str  # data URL
    text: str = ""
    recognisable: bool = False


@dataclass(frozen=True)
class GridRow:
    """The images that one attack recovered from one run."""

    label: str
    attack: str
    cells: tuple[GridImage, ...]


@dataclass(frozen=True)
class ImageGrid:
    """The same true images under several attacks."""

    dataset: str
    note: str
    heads: tuple[str, ...]
    true: tuple[GridImage, ...]
    lines: tuple[GridRow, ...]


def grids(pictures: Sequence[Pictures]) -> list[ImageGrid]:
    """One grid for each set of true images."""
    groups: list[list[Pictures]] = []
    for attacked in pictures:
        same = next((g for g in groups if _same_images(g[0], attacked)), None)
        if same is None:
            groups.append([attacked])
        else:
            same.append(attacked)
    return [_grid(group) for group in groups]


def _same_images(a: Pictures, b: Pictures) -> bool:
    return a.dataset == b.dataset and a.images == b.images and torch.equal(a.true, b.true)


def _grid(group: list[Pictures]) -> ImageGrid:
    first = group[0]
    scores = [psnr(p.true, p.recovered, "unit", 1.0).values for p in group]
    shown = _spread_by_score(torch.stack(scores).amax(0))
    total = len(first.images)
    note = f"{total} image{'s' if total > 1 else ''}."
    if len(shown) < total:
        note = f"{len(shown)} of {total} images, evenly spaced from best to worst recovered by the strongest attack."
    lines = [
        GridRow(label(p.method, p.defence), p.attack, tuple(_cell(p.recovered[i], float(s[i])) for i in shown))
        for p, s in zip(group, scores)
    ]
    heads = tuple(f"#{first.images[i]}" for i in shown)
    return ImageGrid(first.dataset, note, heads, tuple(GridImage(_png(first.true[i])) for i in shown), tuple(lines))


def _spread_by_score(top: Tensor) -> list[int]:
    """Indices of all images, or of some evenly spaced from best to worst, so that the selection is not biased."""
    order = top.argsort(descending=True, stable=True).tolist()
    if len(order) <= MAX_COLUMNS:
        return [int(i) for i in order]
    return [int(order[round(i)]) for i in np.linspace(0, len(order) - 1, MAX_COLUMNS)]


def _cell(image: Tensor, score: float) -> GridImage:
    return GridImage(_png(image), f"{score:.1f} dB", score >= RECOGNISABLE)


def _png(image: Tensor) -> str:
    """An image [C, H, W] in [0, 1] as a data URL; unless it has three channels, their mean is shown in grey."""
    pixels = (image.detach().cpu().float().nan_to_num(0.5).clamp(0, 1) * 255).round().to(torch.uint8)
    grey = pixels.float().mean(0).round().to(torch.uint8).numpy()
    image_file = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy() if len(pixels) == 3 else grey)
    buffer = BytesIO()
    image_file.save(buffer, format="png")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
