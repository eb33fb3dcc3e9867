"""Attacks by name: each takes a problem and gives what it recovered from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from unskew.errors import UserError, nearest
from unskew.privacy.attacks.dlg import dlg
from unskew.privacy.attacks.idlg import idlg
from unskew.privacy.attacks.ig import ig
from unskew.privacy.problem import Problem, Progress, Recovery


@dataclass(frozen=True)
class Attack:
    """A function, the number of iterations its authors give it, and the numbers it computes in."""

    name: str
    run: Callable[[Problem, int, int, int, Progress], Recovery]
    iterations: int
    dtype: torch.dtype


ATTACKS = {
    attack.name: attack
    for attack in (
        # L-BFGS divides by differences of gradients, which single precision does not resolve near the end.
        Attack("dlg", dlg, 300, torch.float64),
        Attack("idlg", idlg, 300, torch.float64),
        Attack("ig", ig, 4800, torch.float32),
    )
}


def find(name: str) -> Attack:
    """The attack of that name."""
    if name not in ATTACKS:
        raise UserError(f"attack: expected one of {', '.join(ATTACKS)}, found {name!r}{nearest(name, list(ATTACKS))}")
    return ATTACKS[name]
