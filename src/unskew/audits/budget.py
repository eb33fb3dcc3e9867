"""How hard an audit tries. Every result is reported with its budget, because a failed attack proves nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from unskew.audits.attacks import SHARED_ATTACKS, attack_by_name
from unskew.audits.threat_model import SERVER, ThreatModel


@dataclass(frozen=True)
class Budget:
    """What is attacked, under which threat model, and for how long."""

    attacks: tuple[str, ...] = ("dlg", "idlg", "ig")
    threat: ThreatModel = SERVER
    images: int = 16  # attack further messages, never part of one, until they have this many images
    iterations: int | None = None  # of every attack; None: the number its authors used
    restarts: int = 3
    max_unrolled_steps: int = 32  # most local steps to unroll; an update of more steps is treated as one gradient
    at_once: int = 16  # tries optimised in parallel
    seed: int = 0
    membership: Literal["none", "loss", "shadow"] = "loss"
    on_shared: tuple[str, ...] = tuple(SHARED_ATTACKS)  # attacks on rows that clients share outside training

    def iterations_of(self, attack: str) -> int:
        return self.iterations or SHARED_ATTACKS.get(attack) or attack_by_name(attack).iterations

    def cache_key(self, attack: str, message: str) -> str:
        """Names the cached result of one message by everything that it depends on."""
        effort = (self.iterations_of(attack), self.restarts, self.max_unrolled_steps, self.seed)
        inputs = (attack, message, str(self.threat), *effort)
        return hashlib.sha256(repr(inputs).encode()).hexdigest()[:12]

    def describe(self, attack: str) -> str:
        """One line for users, such as `ig: 3 tries of 4800 iterations`."""
        tries = "1 try" if self.restarts == 1 else f"{self.restarts} tries"
        return f"{attack}: {tries} of {self.iterations_of(attack)} iterations"
