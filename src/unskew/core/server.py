"""The server's side of a run, and one round in its fixed order.

1 plan · 2 exchanges before the round · 3 `now`, `down` · 4 training, `up` · 5 `stand_ins` · 6 `merge` (the owner of the
model last) · 7 `step` · 8 exchanges after the merge, with the new model. Evaluation and checkpoint follow in the runner.
An empty cohort skips 4; with no message and no stand-in the model stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unskew.core.client import Received
from unskew.core.ledger import Ledger
from unskew.core.messages import Inbox, artefacts, check_declared
from unskew.core.method import Method, Task
from unskew.core.part import Artefact, Exchange, Part
from unskew.core.plan import Plan
from unskew.core.state import Message, State, Tree
from unskew.core.store import ClientStore
from unskew.errors import UserError
from unskew.models.model import Model

if TYPE_CHECKING:
    from unskew.engine.base import Engine, Outcome

MODEL = Artefact("weights", reduce="mean")
SAMPLES = Artefact("counts", reduce="sum")
Phase = Callable[[str, int], None]


@dataclass(frozen=True)
class StandIn:
    """Rows that train for an absent client: x [n, ...] ready for the model, y [n] or [n, classes], its weight in rows."""

    x: Tensor
    y: Tensor
    rows: int
    more: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """The server as one part sees it; hooks return a changed copy (`replace`)."""

    model: State
    mine: State
    round: int
    net: Model
    task: Task
    generator: Callable[..., torch.Generator]  # keyed draws: generator("shuffle")

    def replace(self, **changes: Any) -> Server:
        return replace(self, **changes)


@dataclass(frozen=True)
class Snapshot:
    """Everything a run remembers between rounds, besides the clients' state."""

    round: int
    model: State
    parts: Tree
    seen: frozenset[int]  # clients that have taken part
    ledger: Ledger


@dataclass(frozen=True)
class Report:
    """What a round tells the runner: loss terms of each client, who was dropped, what was sent."""

    terms: dict[int, dict[str, Tensor]]
    dropped: list[int]
    messages: dict[int, Message]


@dataclass(frozen=True)
class Federation:
    """What a run depends on and never changes."""

    method: Method
    model: Model
    task: Task
    plan: Plan
    engine: Engine
    store: ClientStore
    weigh_by_rows: bool
    rows: list[int]  # rows of each client
    phase: Phase = lambda name, round: None

    def start(self) -> Snapshot:
        """Before round 1."""
        device = self.engine.device
        parts = {p.name: s for p in self.method.parts if (s := p.server_init(self.model, self.task))}
        moved = {name: {k: t.to(device) for k, t in state.items()} for name, state in parts.items()}
        model = {name: tensor.to(device) for name, tensor in self.model.initial.items()}
        return Snapshot(0, model, moved, frozenset(), Ledger())

    def received(self, snap: Snapshot) -> tuple[Received, dict[str, Artefact]]:
        """The model and every part's broadcasts, checked against what is declared."""
        parts, declared = {}, {}
        for part in self.method.parts:
            sent = part.down(self._server(snap, part))
            check_declared(part.name, part.broadcasts, sent, "down")
            if sent:
                parts[part.name] = sent
                declared |= {f"{part.name}/{name}": part.broadcasts[name] for name in sent}
        return Received(snap.model, parts), declared

    def play(
        self, before: Snapshot, keep: Callable[[int, int], bool] = lambda round, client: False
    ) -> tuple[Snapshot, Report]:
        """One round. `before` is left untouched, so that an interrupted round can be played again."""
        round = before.round + 1
        method, _ = self.method.now(round, self.task)
        return replace(self, method=method)._play(replace(before, round=round, ledger=before.ledger.next()), keep)

    def _play(self, snap: Snapshot, keep: Callable[[int, int], bool]) -> tuple[Snapshot, Report]:
        round = snap.round
        participants, absent = self.plan.participants(round), self.plan.absent(round)
        self.phase("plan", round)
        if round == 1:
            snap = self._exchange(snap, "before training", participants)
        snap = self._exchange(snap, "before round", participants)
        self.phase("before round", round)
        inbox, report, snap = self._train(snap, participants, keep)
        self.phase("train", round)
        self._stand_in(snap, absent, inbox)
        self.phase("stand-ins", round)
        snap = self._merge(snap, inbox)
        self.phase("merge", round)
        for part in self.method.parts:
            snap = self._apply(snap, part, part.step(self._server(snap, part)), part.edits_model)
        snap = replace(snap, seen=snap.seen | set(participants))
        self.phase("step", round)
        snap = self._exchange(snap, "after merge", participants)
        self.phase("after merge", round)
        return snap, report

    def close(self, snap: Snapshot) -> Snapshot:
        """Exchanges at the end of the run."""
        snap = replace(snap, ledger=snap.ledger.next())
        return self._exchange(snap, "at the end", self.plan.participants(max(snap.round, 1)))

    def _server(self, snap: Snapshot, part: Part) -> Server:
        def generator(*key: int | str) -> torch.Generator:
            return self.plan.generator(snap.round, "server", part.name, *key)

        return Server(snap.model, snap.parts.get(part.name, {}), snap.round, self.model, self.task, generator)

    def _apply(self, snap: Snapshot, part: Part, after: Server, may_edit: bool) -> Snapshot:
        """Keep what a hook changed; only the owner, or a part that declares it, may change the model."""
        if after.model is not snap.model and not may_edit:
            raise UserError(
                f"part {part.name} changed the model without owning it; set edits_model = True if that is meant"
            )
        parts = snap.parts | ({part.name: after.mine} if after.mine else {})
        return replace(snap, model=after.model, parts=parts)

    def _train(
        self, snap: Snapshot, participants: list[int], keep: Callable[[int, int], bool]
    ) -> tuple[Inbox, Report, Snapshot]:
        round, ledger = snap.round, snap.ledger
        received, declared = self.received(snap)
        ledger.down(round, "train", participants, "model", "weights", MODEL, received.model)
        for name, artefact in declared.items():
            part, _, short = name.partition("/")
            ledger.down(round, "train", participants, part, short, artefact, received.parts[part][short])
        inbox = Inbox({part.name: part.sends for part in self.method.parts}, self.weigh_by_rows)
        report = Report({}, inbox.dropped, {})
        busy = [k for k in participants if self.rows[k]]
        for outcome in self.engine.train(round, received, busy, self.store.get):
            self._receive(snap, outcome, inbox, report, keep)
        return inbox, report, snap

    def _receive(
        self, snap: Snapshot, outcome: Outcome, inbox: Inbox, report: Report, keep: Callable[[int, int], bool]
    ) -> None:
        """Enter one client's message in the ledger, take it in, keep its state."""
        client = outcome.client
        taken = inbox.add(client, self.rows[client], outcome.message)
        snap.ledger.up(snap.round, "train", client, "model", "samples", SAMPLES, torch.zeros((), dtype=torch.int64))
        sends = {part.name: part.sends for part in self.method.parts}
        for part, name, value in artefacts(outcome.message):
            snap.ledger.up(snap.round, "train", client, part, name, sends[part][name], value)
        report.terms[client] = outcome.terms
        if keep(snap.round, client):
            report.messages[client] = outcome.message
        if taken:
            self.store.put(client, outcome.mine)

    def _stand_in(self, snap: Snapshot, absent: list[int], inbox: Inbox) -> None:
        """What trains for absent clients, by the server's own engine and outside the ledger: nothing travels."""
        found = [
            (k, s) for part in self.method.parts for k, s in part.stand_ins(self._server(snap, part), absent).items()
        ]
        if not found:
            return
        received, _ = self.received(snap)
        for outcome in self.engine.stand_in(snap.round, received, dict(found), self.store.fresh):
            inbox.add(outcome.client, dict(found)[outcome.client].rows, outcome.message)

    def _merge(self, snap: Snapshot, inbox: Inbox) -> Snapshot:
        if not inbox.clients:
            return snap
        for part in self.method.merge_order:
            after = part.merge(self._server(snap, part), inbox.of(part.name))
            snap = self._apply(snap, part, after, part.owner)
        return snap

    def _exchange(self, snap: Snapshot, when: str, participants: list[int]) -> Snapshot:
        for part in self.method.parts:
            due = part.exchange
            if (
                due is None
                or due.when != when
                or (when not in ("before training", "at the end") and snap.round % due.every)
            ):
                continue
            snap = self._share(snap, part, due, self._who(snap, due, participants))
        return snap

    def _who(self, snap: Snapshot, due: Exchange, participants: list[int]) -> list[int]:
        away = set(self.plan.absent(max(snap.round, 1)))
        present = [k for k in range(self.task.clients) if k not in away]
        chosen = {
            "participants": participants,
            "all": present,
            "newcomers": [k for k in participants if k not in snap.seen],
        }
        return [k for k in chosen[due.who] if self.rows[k]]

    def _share(self, snap: Snapshot, part: Part, due: Exchange, clients: list[int]) -> Snapshot:
        """One part's exchange: the model goes down where it is needed, artefacts come up, the server collects."""
        received, _ = self.received(snap)
        if due.model:
            snap.ledger.down(snap.round, due.when, clients, "model", "weights", MODEL, snap.model)
        inbox = Inbox({part.name: part.shares}, self.weigh_by_rows)
        for outcome in self.engine.share(snap.round, part.name, received, clients, self.store.get):
            if not inbox.add(outcome.client, self.rows[outcome.client], outcome.message):
                continue
            for name, value in outcome.message.get(part.name, {}).items():
                snap.ledger.up(snap.round, due.when, outcome.client, part.name, name, part.shares[name], value)
            self.store.put(outcome.client, self.store.get(outcome.client) | outcome.mine)
        after = part.collect(self._server(snap, part), inbox.of(part.name))
        return self._apply(snap, part, after, part.owner or part.edits_model)
