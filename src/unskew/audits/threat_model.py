"""Threat models: who attacks, which messages of a recorded round the attacker sees, and what else it knows.

`str(threat)` states these assumptions, so that every result can be printed together with them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from unskew.base.errors import UserError, expected_one_of
from unskew.base.tree import Message
from unskew.protocol.part import Artefact
from unskew.results.recorded_messages import RecordedRound
from unskew.server.round_messages import RoundMessages, is_finite
from unskew.wire.ledger import LedgerMessage


@dataclass(frozen=True)
class AttackerKnowledge:
    """What an attacker knows besides the messages. The method, its settings and the architecture are never secret."""

    model: bool = True  # the weights that the clients started the round from
    labels: bool = False  # if unknown, inferred from the messages
    batch: bool = True  # rows per step; if unknown, every step uses all rows of the client
    steps: bool = True  # number of local steps; if unknown, the update is treated as one gradient
    batchnorm: bool = True  # that BatchNorm ran in training mode; if unknown, running statistics are used
    draws: bool = False  # the client's row order and other random draws; if unknown, the attacker draws its own


@dataclass(frozen=True)
class Observation:
    """One client's message, or the sum over several clients, with what was broadcast to them."""

    round: int
    clients: tuple[int, ...]
    up: Message
    down: Message


@dataclass(frozen=True)
class ThreatModel:
    """An attacker that sees every client's message, only their sum, or only broadcasts."""

    name: str
    role: str
    up: Literal["each", "sum", "nothing"]
    knows: AttackerKnowledge = AttackerKnowledge()

    def __str__(self) -> str:
        # `Budget.cache_key` hashes this text: changing it discards the cached results of interrupted audits.
        seen = {
            "each": "every client's message and what is broadcast",
            "sum": "the cohort's sum of what may be added up (reduce sum or mean), and what is broadcast",
            "nothing": "what is broadcast",
        }[self.up]
        known = [f.name for f in fields(self.knows) if getattr(self.knows, f.name)]
        secret = [f.name for f in fields(self.knows) if not getattr(self.knows, f.name)]
        return (
            f"{self.name}: {self.role}; sees {seen}; knows {', '.join(known) or 'nothing else'}; "
            f"does not know {', '.join(secret) or 'nothing of these'}"
        )

    @property
    def summary(self) -> str:
        """The name, and how the knowledge differs from the default server's: `server, knows labels`."""
        words = [self.name]
        for field in fields(self.knows):
            known = getattr(self.knows, field.name)
            if known != getattr(AttackerKnowledge(), field.name):
                words.append(f"{'knows' if known else 'without'} {field.name}")
        return ", ".join(words)

    def with_knowledge(self, names: tuple[str, ...]) -> ThreatModel:
        """The same attacker, which also knows these fields of `AttackerKnowledge`."""
        known = [f.name for f in fields(AttackerKnowledge)]
        if unknown := [name for name in names if name not in known]:
            raise UserError(f"knows: {expected_one_of(known, unknown[0], 'some of')}")
        return replace(self, knows=replace(self.knows, **dict.fromkeys(names, True)))

    def observe(self, recorded: RecordedRound, senders: tuple[int, ...], weigh_by_rows: bool) -> list[Observation]:
        """This attacker's view of a recorded round.

        senders: all clients that sent an update in the round. weigh_by_rows: weigh clients by their rows in a mean.
        """
        training = [sent for sent in recorded.sent if sent.entry.phase == "train"]
        if self.up == "nothing":
            clients = sorted({sent.entry.client for sent in training if sent.entry.direction == "down"})
            return [Observation(recorded.round, (k,), {}, recorded.of(k, "down")) for k in clients]
        if self.up == "each":
            return [
                Observation(recorded.round, (k,), recorded.of(k, "up"), recorded.of(k, "down"))
                for k in recorded.senders
            ]
        if missing := [k for k in senders if k not in recorded.senders]:
            raise UserError(
                f"threat {self.name}: expected the messages of all {len(senders)} clients that sent in round "
                f"{recorded.round}, found none of client {missing[0]}; run it again with record.clients=all"
            )
        first = recorded.senders[0]
        total = _aggregate(recorded, training, weigh_by_rows)
        return [Observation(recorded.round, senders, total, recorded.of(first, "down"))]


def _aggregate(recorded: RecordedRound, training: list[LedgerMessage], weigh_by_rows: bool) -> Message:
    """Sums and means as the server computes them; leaves out artefacts that are not declared as sum or mean."""
    ups = [sent for sent in training if sent.entry.direction == "up" and sent.reduce in ("sum", "mean")]
    declared: dict[str, dict[str, Artefact]] = {}
    for entry, reduce, _ in ups:
        declared.setdefault(entry.part, {})[entry.artefact] = Artefact(entry.kind, reduce)  # type: ignore[arg-type]
    sums = RoundMessages(declared, weigh_by_rows)
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
FELLOW_CLIENT = ThreatModel("fellow-client", "another client of the federation", "nothing")
THREATS = {threat.name: threat for threat in (SERVER, SUM_ONLY, EAVESDROPPER, FELLOW_CLIENT)}


def threat_by_name(name: str) -> ThreatModel:
    """The threat model of that name, or a UserError with the known names."""
    if name not in THREATS:
        raise UserError(f"threat: {expected_one_of(THREATS, name)}")
    return THREATS[name]
