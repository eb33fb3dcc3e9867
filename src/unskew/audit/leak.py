"""What an audit finds, as values: rows of numbers, pictures, and a verdict per kind of artefact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class Leak:
    """One number about one try on one image; what concerns no single image has image -1, no single try restart -1."""

    method: str
    defence: str
    attack: str
    dataset: str
    image: int
    restart: int
    metric: str
    space: str  # of MSE and PSNR: unit or normalised, with the range; of LPIPS: the backbone
    value: float
    seed: int


# Identity comparison: comparing tensors field by field would be ambiguous.
@dataclass(frozen=True, eq=False)
class Pictures:
    """Images and what an attack made of them; true, recovered: [n, C, H, W] in [0, 1]."""

    attack: str
    images: tuple[int, ...]
    true: Tensor
    recovered: Tensor
    method: str = ""
    defence: str = ""
    dataset: str = ""


@dataclass(frozen=True)
class KindVerdict:
    """What an audit says about one kind of artefact that left the clients."""

    kind: str
    state: Literal["recovered", "resisted", "unknown"]  # unknown: no attack is known here
    words: str
    method: str = ""
