"""Attacks by name: each takes a problem and gives what it recovered from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from unskew.audit.attacks.dlg import dlg
from unskew.audit.attacks.idlg import idlg
from unskew.audit.attacks.ig import ig
from unskew.audit.problem import Problem, Progress, Recovery
from unskew.base.errors import UserError, nearest


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


# On what clients share row by row (`privacy.on_shared`): names and training steps.
ON_SHARED = {"decoder": 7800, "context": 1000}


def find(name: str) -> Attack:
    """The attack of that name on updates."""
    if name not in ATTACKS:
        known = [*ATTACKS, *ON_SHARED]
        raise UserError(f"attack: expected one of {', '.join(known)}, found {name!r}{nearest(name, known)}")
    return ATTACKS[name]


def chosen(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Attacks on updates and attacks on what is shared, of those that were named.

    >>> chosen(("decoder", "ig"))
    (('ig',), ('decoder',))
    """
    return tuple(find(name).name for name in names if name not in ON_SHARED), tuple(n for n in names if n in ON_SHARED)
