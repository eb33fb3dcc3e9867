"""Attacks by name: each takes a problem and returns what it recovered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from unskew.audits.attacks.dlg import dlg
from unskew.audits.attacks.idlg import idlg
from unskew.audits.attacks.ig import ig
from unskew.audits.problem import Problem, Progress, Recovery
from unskew.base.errors import UserError, expected_one_of

AttackFunction = Callable[[Problem, int, int, int, Progress], Recovery]


@dataclass(frozen=True)
class Attack:
    """An attack function with the number of iterations that its authors use and the dtype it needs."""

    name: str
    run: AttackFunction
    iterations: int
    dtype: torch.dtype


ATTACKS = {
    attack.name: attack
    for attack in (
        # L-BFGS divides by differences of gradients, which are too small for single precision near convergence.
        Attack("dlg", dlg, 300, torch.float64),
        Attack("idlg", idlg, 300, torch.float64),
        Attack("ig", ig, 4800, torch.float32),
    )
}


# Attacks on data that clients share row by row (`attack_shared_rows.py`): names and training steps.
SHARED_ATTACKS = {"decoder": 7800, "context": 1000}


def attack(
    name: str, *, iterations: int, dtype: torch.dtype = torch.float32
) -> Callable[[AttackFunction], AttackFunction]:
    """Register a function (problem, tries, iterations, seed, progress) -> Recovery as an attack on updates."""

    def register(run: AttackFunction) -> AttackFunction:
        ATTACKS[name] = Attack(name, run, iterations, dtype)
        return run

    return register


def attack_by_name(name: str) -> Attack:
    """The attack of that name on updates."""
    if name not in ATTACKS:
        known = [*ATTACKS, *SHARED_ATTACKS]
        raise UserError(f"attack: {expected_one_of(known, name)}")
    return ATTACKS[name]


def split_attacks(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split attack names into attacks on updates and attacks on data shared row by row.

    >>> split_attacks(("decoder", "ig"))
    (('ig',), ('decoder',))
    """
    on_updates = tuple(attack_by_name(name).name for name in names if name not in SHARED_ATTACKS)
    return on_updates, tuple(name for name in names if name in SHARED_ATTACKS)
