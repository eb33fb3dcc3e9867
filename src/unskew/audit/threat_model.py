"""Threat models: who attacks, what of a recorded round he sees, and what he knows beyond it.

A threat prints itself, so that every figure can stand beside what was assumed for it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from unskew.base.errors import UserError, nearest
from unskew.base.tree import Message
from unskew.protocol.part import Artefact
from unskew.results.recorded_messages import RecordedRound
from unskew.server.round_messages import RoundMessages, is_finite
from unskew.wire.ledger import LedgerMessage


@dataclass(frozen=True)
class AttackerKnowledge:
    """What an attacker has besides what he sees. The method, its settings and the net's layers are never secret."""

    model: bool = True  # the weights that the clients began the round with
    labels: bool = False  # otherwise inferred from what he sees
    batch: bool = True  # rows of a step; otherwise all rows of the client at once
    steps: bool = True  # number of local steps; otherwise he takes the update for one gradient
    batchnorm: bool = True  # its mode in training; otherwise he takes the running statistics
    draws: bool = False  # order of the rows and other draws of the client; otherwise he draws his own


@dataclass(frozen=True)
class Observation:
    """One observation: what came up from a client, or the sum over clients, and what was broadcast to them."""

    round: int
    clients: tuple[int, ...]
    up: Message
    down: Message


@dataclass(frozen=True)
class ThreatModel:
    """Somebody who looks at a round: at each message, at their sum, or at broadcasts alone."""

    name: str
    who: str
    up: Literal["each", "sum", "nothing"]
    knows: AttackerKnowledge = AttackerKnowledge()

    def __str__(self) -> str:
        seen = {
            "each": "every client's message and what is broadcast",
            "sum": "the cohort's sum of what may be added up (reduce sum or mean), and what is broadcast",
            "nothing": "what is broadcast",
        }[self.up]
        known = [f.name for f in fields(self.knows) if getattr(self.knows, f.name)]
        secret = [f.name for f in fields(self.knows) if not getattr(self.knows, f.name)]
        return (
            f"{self.name}: {self.who}; sees {seen}; knows {', '.join(known) or 'nothing else'}; "
            f"does not know {', '.join(secret) or 'nothing of these'}"
        )

    def given(self, names: tuple[str, ...]) -> ThreatModel:
        """The same attacker, who also knows these."""
        known = [f.name for f in fields(AttackerKnowledge)]
        if unknown := [name for name in names if name not in known]:
            raise UserError(
                f"knows: expected some of {', '.join(known)}, found {unknown[0]!r}{nearest(unknown[0], known)}"
            )
        return replace(self, knows=replace(self.knows, **dict.fromkeys(names, True)))

    def sees(self, recorded: RecordedRound, senders: tuple[int, ...], by_rows: bool) -> list[Observation]:
        """What of a recorded round this attacker has; `senders` are all that sent in it, `by_rows` how they weigh."""
        phase = [sent for sent in recorded.sent if sent.entry.phase == "train"]
        if self.up == "nothing":
            clients = sorted({sent.entry.client for sent in phase if sent.entry.direction == "down"})
            return [Observation(recorded.round, (k,), {}, recorded.of(k, "down")) for k in clients]
        if self.up == "each":
            return [
                Observation(recorded.round, (k,), recorded.of(k, "up"), recorded.of(k, "down"))
                for k in recorded.senders
            ]
        if missing := [k for k in senders if k not in recorded.senders]:
            raise UserError(
                f"threat {self.name}: expected the messages of all {len(senders)} clients that sent in round "
                f"{recorded.round}, found none of client {missing[0]}; play the run with record.clients=all"
            )
        first = recorded.senders[0]
        return [Observation(recorded.round, senders, _added_up(recorded, phase, by_rows), recorded.of(first, "down"))]


def _added_up(recorded: RecordedRound, phase: list[LedgerMessage], by_rows: bool) -> Message:
    """The sums and means that the server's own inbox makes; what may not be added up is not there."""
    ups = [sent for sent in phase if sent.entry.direction == "up" and sent.reduce in ("sum", "mean")]
    declared: dict[str, dict[str, Artefact]] = {}
    for entry, reduce, _ in ups:
        declared.setdefault(entry.part, {})[entry.artefact] = Artefact(entry.kind, reduce)  # type: ignore[arg-type]
    sums = RoundMessages(declared, by_rows)
    for k in recorded.senders:
        message: Message = {}
        for entry, _, value in ups:
            if entry.client == k:
                message.setdefault(entry.part, {})[entry.artefact] = value
        if is_finite(message):
            sums.add(k, recorded.rows_of(k), message)
    return {
        part: {n: (sums.of(part).mean if a.reduce == "mean" else sums.of(part).sum)(n) for n, a in names.items()}
        for part, names in declared.items()
    }


SERVER = ThreatModel("server", "an honest-but-curious server", "each")
SUM_ONLY = ThreatModel("sum-only", "the server under secure aggregation", "sum")
EAVESDROPPER = ThreatModel(
    "eavesdropper", "a listener on the wire without encryption", "each", AttackerKnowledge(steps=False)
)
FELLOW = ThreatModel("fellow-client", "another client of the federation", "nothing")
THREATS = {threat.name: threat for threat in (SERVER, SUM_ONLY, EAVESDROPPER, FELLOW)}


def find(name: str) -> ThreatModel:
    """The threat of that name."""
    if name not in THREATS:
        raise UserError(f"threat: expected one of {', '.join(THREATS)}, found {name!r}{nearest(name, list(THREATS))}")
    return THREATS[name]
