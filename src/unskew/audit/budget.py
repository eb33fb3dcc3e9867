"""How hard an audit tries. Every figure is reported with it, because an attack that fails proves nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from unskew.audit.attacks import ON_SHARED, find
from unskew.audit.threat_model import SERVER, ThreatModel


@dataclass(frozen=True)
class Budget:
    """What is attacked, by whom, and how long."""

    attacks: tuple[str, ...] = ("dlg", "idlg", "ig")
    threat: ThreatModel = SERVER
    images: int = 16  # messages are attacked whole until this many images are reached
    iterations: int | None = None  # of every attack; None: what its authors gave it
    restarts: int = 3
    longest: int = 32  # local steps that are unrolled; beyond, the update is taken for one gradient
    at_once: int = 16  # tries that are searched side by side
    seed: int = 0
    membership: Literal["none", "loss", "shadow"] = "loss"
    on_shared: tuple[str, ...] = tuple(ON_SHARED)  # attacks on rows that clients share outside training

    def iterations_of(self, attack: str) -> int:
        return self.iterations or ON_SHARED.get(attack) or find(attack).iterations

    def key(self, attack: str, message: str) -> str:
        """What a kept result depends on."""
        said = (attack, message, str(self.threat), self.iterations_of(attack), self.restarts, self.longest, self.seed)
        return hashlib.sha256(repr(said).encode()).hexdigest()[:12]

    def words(self, attack: str) -> str:
        """As it stands beside a figure."""
        tries = "1 try" if self.restarts == 1 else f"{self.restarts} tries"
        return f"{attack}: {tries} of {self.iterations_of(attack)} iterations"
