"""Results of an audit as data: leak values, images, and a verdict per kind of artefact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class Leak:
    """One value of one try on one image; image is -1 if it is not about a single image, restart likewise for a try."""

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


# eq=False, because comparing tensors with == does not give a bool.
@dataclass(frozen=True, eq=False)
class Pictures:
    """True images and what an attack recovered of them; true, recovered: [n, C, H, W] in [0, 1]."""

    attack: str
    images: tuple[int, ...]
    true: Tensor
    recovered: Tensor
    method: str = ""
    defence: str = ""
    dataset: str = ""


# leaked: private data sent in clear; identified: a stamped square; unknown: not attacked, `words` has the reason
State = Literal["recovered", "leaked", "identified", "resisted", "unknown", "unattackable"]


@dataclass(frozen=True)
class KindVerdict:
    """The audit's conclusion about one kind of artefact that left the clients."""

    kind: str
    state: State
    words: str
    method: str = ""
    strength: tuple[float, ...] = ()  # orders verdicts of one state: images recovered, their share, then quality
    also: tuple[str, ...] = ()  # weaker attacks that were tried too
