"""How hard an audit tries. Every result is reported with its budget, because a failed attack proves nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from unskew.audits.attacks import ATTACKS, SHARED_ATTACKS, attack_by_name
from unskew.audits.threat_model import SERVER, ThreatModel

UNROLLED = 32  # local steps


@dataclass(frozen=True)
class Budget:
    """What is attacked, under which threat model, and for how long."""

    attacks: tuple[str, ...] = ("dlg", "idlg", "ig")
    threat: ThreatModel = SERVER
    images: int = 16  # attack further messages, never part of one, until they have this many images
    iterations: int | None = None  # of every attack; None: the number its authors used
    restarts: int = 3
    max_unrolled_steps: int = UNROLLED  # most local steps to unroll; an update of more steps is treated as one gradient
    at_once: int = 16  # tries optimised in parallel
    seed: int = 0
    membership: Literal["none", "loss", "shadow"] = "loss"
    on_shared: tuple[str, ...] = tuple(SHARED_ATTACKS)  # attacks on rows that clients share outside training

    def iterations_of(self, attack: str) -> int:
        return self.iterations or SHARED_ATTACKS.get(attack) or attack_by_name(attack).iterations

    def iterations_for(self, attack: str) -> int | str:
        """Iterations of an attack as `leak.csv` names it, such as `decoder/round-1`; empty if it does not iterate."""
        name = attack.partition("/")[0]
        return self.iterations_of(name) if name in (*ATTACKS, *SHARED_ATTACKS) else ""

    @property
    def identity(self) -> str:
        """Eight hexadecimal characters that change with anything that may change the result of the audit."""
        effort = (self.images, self.iterations, self.restarts, self.max_unrolled_steps, self.seed)
        inputs = (self.attacks, self.on_shared, str(self.threat), *effort, self.membership)
        return hashlib.sha256(repr(inputs).encode()).hexdigest()[:8]

    def cache_key(self, attack: str, message: str) -> str:
        """Names the cached result of one message by everything that it depends on."""
        effort = (self.iterations_of(attack), self.restarts, self.max_unrolled_steps, self.seed)
        inputs = (attack, message, str(self.threat), *effort)
        return hashlib.sha256(repr(inputs).encode()).hexdigest()[:12]

    def difference(self, attack: str, budgets: Sequence[Budget]) -> str:
        """In what this budget for an attack differs from the others in the list; empty if in nothing."""
        name = attack.partition("/")[0]
        others = [each for each in budgets if name not in (*ATTACKS, *SHARED_ATTACKS) or name in each.tried]
        words = []
        if name in (*ATTACKS, *SHARED_ATTACKS) and len({(b.restarts, b.iterations_of(name)) for b in others}) > 1:
            words.append(f"{self.restarts} × {self.iterations_of(name)}")
        if len({each.max_unrolled_steps for each in others}) > 1:
            words.append(f"up to {self.max_unrolled_steps} steps unrolled")
        if len({each.threat for each in others}) > 1:
            words.append(self.threat.summary)
        if len({each.seed for each in others}) > 1:
            words.append(f"seed {self.seed}")
        return ", ".join(words)

    def effort(self, attack: str) -> float:
        """How hard an attack tries: tries times iterations."""
        iterations = self.iterations_for(attack)
        return self.restarts * (iterations if isinstance(iterations, int) else 1)

    @property
    def tried(self) -> tuple[str, ...]:
        """The attacks on updates and on shared rows."""
        return (*self.attacks, *self.on_shared)

    def describe(self, attack: str) -> str:
        """One line for users, such as `ig: 3 tries of 4800 iterations`."""
        tries = "1 try" if self.restarts == 1 else f"{self.restarts} tries"
        limit = f", at most {self.max_unrolled_steps} steps unrolled" if self.max_unrolled_steps != UNROLLED else ""
        return f"{attack}: {tries} of {self.iterations_of(attack)} iterations{limit}"
