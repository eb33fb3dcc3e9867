"""A federation plays rounds, each in the same order.

1 plan · 2 exchanges before the round · 3 `now`, `down` · 4 training, exchanges after it, `up`, `seal`, `open` ·
5 `stand_ins` · 6 `merge` (the owner of the model last) · 7 `step` · 8 exchanges after the merge, with the new model.
Evaluation and checkpoint follow in the runner. An empty cohort skips 4; with no message and no stand-in the model stays
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from unskew.base import keyed_rng
from unskew.base.errors import UserError
from unskew.base.gc_pause import gc_paused
from unskew.base.per_client import PerClient
from unskew.base.tree import State
from unskew.models.model import Model
from unskew.protocol.method import Method, Task
from unskew.protocol.part import Artefact, Exchange, Part
from unskew.protocol.server_view import Server
from unskew.server.client_store import ClientStore
from unskew.server.inbox import Declared, Intake
from unskew.server.loss_check import check_loss_terms
from unskew.server.messages import Inbox, check_declared, in_order
from unskew.server.retry_if_nonfinite import retry_if_nonfinite
from unskew.server.sampling import Sampling
from unskew.server.snapshot import Report, Snapshot
from unskew.wire.ledger import Keeps, Ledger, nothing
from unskew.wire.message import ClientReply, CohortReply, LossTerms, Received

if TYPE_CHECKING:
    from unskew.engines.engine import Engine

MODEL = Artefact("weights", reduce="mean")
Phase = Callable[[str, int], None]


@dataclass(frozen=True)
class Federation:
    """What a run depends on and never changes."""

    method: Method
    model: Model
    task: Task
    sampling: Sampling
    engine: Engine
    store: ClientStore
    weigh_by_rows: bool
    rows: PerClient[int]  # how many each client has
    keeps: Keeps = nothing  # whose messages are kept
    phase: Phase = lambda name, round: None

    def start(self) -> Snapshot:
        """Before round 1."""
        device = self.engine.device
        parts = {p.name: s for p in self.method.parts if (s := p.server_init(self.model, self.task))}
        moved = {name: {k: t.to(device) for k, t in state.items()} for name, state in parts.items()}
        model = {name: tensor.to(device) for name, tensor in self.model.initial.items()}
        return Snapshot(0, model, moved, frozenset(), Ledger())

    def play(self, before: Snapshot) -> tuple[Snapshot, Report]:
        """One round. `before` is left untouched, so that an interrupted round can be played again.

        An engine may hand messages out as finite before it has looked, so that nobody waits for a GPU until the round
        is over; the round in which one was not is played again by an engine that looks first. What the store has not
        committed by then is forgotten.
        """
        report, terms = Report(), list[LossTerms]()

        def attempt() -> Snapshot:
            for kept in (report.terms, report.dropped, report.numbers, terms):
                kept.clear()
            start = replace(before, round=before.round + 1, ledger=before.ledger.next(self.keeps))
            return self.at_round(start.round)._play(start, report, terms)

        def look() -> None:
            report.terms.update(check_loss_terms(before.round + 1, terms))

        with gc_paused():  # a tenth of the host's work with 50 small clients
            return retry_if_nonfinite(self.engine, self.store, before, attempt, look), report

    def at_round(self, round: int) -> Federation:
        """The federation with the parts of a round."""
        return replace(self, method=self.method.at_round(max(round, 1), self.task)[0])

    def close(self, snap: Snapshot) -> tuple[Snapshot, Report]:
        """Exchanges at the end of the run."""
        snap, report = replace(snap, ledger=snap.ledger.next(self.keeps)), Report()
        participants = self.sampling.sampled(max(snap.round, 1))
        return self.at_round(snap.round)._exchange(snap, "at the end", participants, report), report

    def received(self, snap: Snapshot) -> Received:
        """The model and every part's broadcasts, checked against what is declared."""
        parts = {}
        for part in self.method.parts:
            sent = part.down(self._server(snap, part))
            check_declared(part.name, part.broadcasts, sent, "down")
            if sent:
                parts[part.name] = sent
        return Received(snap.model, parts)

    def _play(self, snap: Snapshot, report: Report, terms: list[LossTerms]) -> Snapshot:
        """The round, up to what is reported of the clients' loss terms: reading these waits for a GPU."""
        round = snap.round
        participants, absent = self.sampling.sampled(round), self.sampling.absent(round)
        self.phase("plan", round)
        if round == 1:
            snap = self._exchange(snap, "before training", participants, report)
        snap = self._exchange(snap, "before round", participants, report)
        self.phase("before round", round)
        inbox, shared = self._train(snap, participants, report, terms)
        self.phase("train", round)
        for part in self.method.parts:
            if part.name in shared:
                after = part.collect(self._server(snap, part), shared[part.name].of(part.name))
                snap = self._apply(snap, part, after, part.edits_model)
        self.phase("after training", round)
        self._stand_in(snap, absent, inbox, report)
        self.phase("stand-ins", round)
        for part in self.method.merge_order if inbox.clients else ():
            after = part.merge(self._server(snap, part), inbox.of(part.name))
            snap = self._apply(snap, part, after, part.owner)
        self.phase("merge", round)
        for part in self.method.parts:
            snap = self._apply(snap, part, part.step(self._server(snap, part)), part.edits_model)
        self.phase("step", round)
        snap = self._exchange(snap, "after merge", participants, report)
        for part in self.method.parts:
            told = part.report(self._server(snap, part))
            report.numbers.update({f"{part.name}/{name}": value for name, value in told.items()})
        self.phase("after merge", round)
        return replace(snap, seen=snap.seen | set(participants))

    def _train(
        self, snap: Snapshot, participants: list[int], report: Report, terms: list[LossTerms]
    ) -> tuple[Inbox, dict[str, Inbox]]:
        """The clients' messages, and by part what exchanges after training brought; loss terms go into `terms`."""
        received, busy = self.received(snap), [k for k in participants if self.rows[k]]
        outcomes = _begun(self.engine.train(snap.round, received, busy, self.store.get))
        self._send_down(snap, "train", participants, received)
        parts = {part.name: part for part in self.method.parts}
        due = [p for p in parts.values() if p.exchange is not None and p.exchange.when == "after training"]
        mail = self._intake(snap, "train", {name: part.sends for name, part in parts.items()}, report)
        shared = {part.name: self._intake(snap, "after training", {part.name: part.shares}, report) for part in due}
        for outcome in mail.take_in_cohorts(outcomes, terms):
            taken = mail.take_in(outcome)
            for name, sent in outcome.shared.items():
                shared[name].take_in(outcome._replace(message={name: sent}, mine={}, shared={}), taken)
            del outcome  # a view of its whole cohort's messages, which would live while the next cohort trains
        # Crossing a process may have mixed them.
        terms[:] = [some.in_order_of(list(parts)) for some in terms]
        return mail.inbox, {name: each.inbox for name, each in shared.items()}

    def _send_down(self, snap: Snapshot, phase: str, clients: Iterable[int], received: Received) -> None:
        snap.ledger.down(snap.round, phase, clients, "model", "weights", MODEL, self._public(received.model))
        for part in self.method.parts:
            sent = received.parts.get(part.name, {})
            for name, artefact in part.broadcasts.items():
                if name in sent:
                    snap.ledger.down(snap.round, phase, clients, part.name, name, artefact, sent[name])

    def _stand_in(self, snap: Snapshot, absent: list[int], inbox: Inbox, report: Report) -> None:
        """What trains for absent clients, by the server's own engine and outside the ledger: nothing travels.

        A stand-in has a state of its own (kept under ~client), so that what it adds to the server's sums stays
        accounted for; the client it stands for does not lend it anything.
        """
        found = {k: s for p in self.method.parts for k, s in p.stand_ins(self._server(snap, p), absent).items()}
        found = {k: stand_in for k, stand_in in found.items() if len(stand_in.x)}
        if not found:
            return
        declared = {part.name: part.sends for part in self.method.parts}
        mine = {k: self.store.entries[~k] for k in found if ~k in self.store.entries}
        for outcome in self.engine.stand_in(snap.round, self.received(snap), found, mine):
            k, message = outcome.client, in_order(outcome.message, declared)
            if inbox.add(k, found[k].rows, message):
                self.store.put(~k, outcome.mine)
            else:
                report.dropped.append(k)

    def _exchange(self, snap: Snapshot, when: str, participants: list[int], report: Report) -> Snapshot:
        """Every part's exchange that is due now."""
        once = when in ("before training", "at the end")
        for part in self.method.parts:
            due = part.exchange
            if due is not None and due.when == when and (once or snap.round % due.every == 0):
                snap = self._share(snap, part, due, self._who(snap, due, participants), report)
        return snap

    def _who(self, snap: Snapshot, due: Exchange, participants: list[int]) -> list[int]:
        away = set(self.sampling.absent(max(snap.round, 1)))
        chosen = participants if due.who != "all" else [k for k in range(self.task.clients) if k not in away]
        known = snap.seen if due.who == "newcomers" else ()
        return [k for k in chosen if self.rows[k] and k not in known]

    def _share(self, snap: Snapshot, part: Part, due: Exchange, clients: list[int], report: Report) -> Snapshot:
        """One part's exchange: the model goes down where it is needed, artefacts come up, the server collects."""
        received = self.received(snap)
        if due.model:
            snap.ledger.down(snap.round, due.when, clients, "model", "weights", MODEL, self._public(snap.model))
        else:
            received = received._replace(model={})
        mail = self._intake(snap, due.when, {part.name: part.shares}, report)
        for outcome in self.engine.share(snap.round, part.name, received, clients, self.store.get):
            mail.take_in(outcome)
        after = part.collect(self._server(snap, part), mail.inbox.of(part.name))
        return self._apply(snap, part, after, part.owner or part.edits_model)

    def _intake(self, snap: Snapshot, phase: str, declared: Declared, report: Report) -> Intake:
        inbox = Inbox(declared, self.weigh_by_rows, self.engine.add_up)
        return Intake(snap, phase, declared, inbox, report, self.store, self.rows, self.method, self.model.shared)

    def _server(self, snap: Snapshot, part: Part) -> Server:
        def generator(*key: int | str) -> np.random.Generator:
            return keyed_rng.generator(self.sampling.seed, snap.round, "server", part.name, *key)

        return Server(snap.model, snap.parts.get(part.name, {}), snap.round, self.model, self.task, generator)

    def _apply(self, snap: Snapshot, part: Part, after: Server, may_edit: bool) -> Snapshot:
        """Keep what a hook changed; only the owner, or a part that declares it, may change the model."""
        if after.model is not snap.model and not may_edit:
            raise UserError(
                f"part {part.name} changed the model without owning it; set edits_model = True if that is meant"
            )
        parts = snap.parts | ({part.name: after.mine} if after.mine else {})
        # Tensors that never leave the clients are in no message: the server's stay as they are.
        return replace(snap, model=snap.model | after.model if self.model.private else after.model, parts=parts)

    def _public(self, model: State) -> State:
        return {name: t for name, t in model.items() if name not in self.model.private}


def _begun(outcomes: Iterator[ClientReply | CohortReply]) -> Iterator[ClientReply | CohortReply]:
    """The same, with the first one asked for now: a device trains while the host goes on with other things."""
    first = list(islice(outcomes, 1))

    def all_of() -> Iterator[ClientReply | CohortReply]:
        while first:
            yield first.pop()  # and nobody keeps it
        yield from outcomes

    return all_of()
