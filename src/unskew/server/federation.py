"""A federation plays rounds, each in the same order.

1 plan · 2 exchanges before the round · 3 `at_round`, `down` · 4 training, exchanges after it, `up`, `seal`, `open` ·
5 `stand_ins` · 6 `merge` (the owner of the model last) · 7 `step` · 8 exchanges after the merge, with the new model.
Evaluation and checkpoint follow in the runner. An empty cohort skips 4; with no message and no stand-in the model stays
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from unskew.base import keyed_rng
from unskew.base.errors import UserError
from unskew.base.gc_pause import gc_paused
from unskew.base.per_client import PerClient
from unskew.base.tree import State
from unskew.client.client_rows import to_device
from unskew.models.model import Model
from unskew.protocol.method import Method, Task
from unskew.protocol.part import Artefact, Exchange, Part, check_declared
from unskew.protocol.server_view import Server, StandIn
from unskew.server.client_store import ClientStore
from unskew.server.expected_replies import ContractOf, ExpectedReplies
from unskew.server.inbox import Declared, Inbox, ReplyPolicy
from unskew.server.loss_check import NotFiniteError, check_loss_terms, loss_terms
from unskew.server.retry_if_nonfinite import retry_if_nonfinite
from unskew.server.round_messages import RoundMessages
from unskew.server.sampling import Sampling
from unskew.server.snapshot import RoundReport, Snapshot
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
    policy: ReplyPolicy = field(default_factory=ReplyPolicy)
    expected: ExpectedReplies = field(default_factory=ExpectedReplies)

    def start(self) -> Snapshot:
        """Before round 1."""
        device = self.engine.device
        parts = {p.name: s for p in self.method.parts if (s := p.server_init(self.model, self.task))}
        moved = to_device(parts, device)
        model = {name: tensor.to(device) for name, tensor in self.model.initial.items()}
        return Snapshot(0, model, moved, frozenset(), Ledger())

    def play(self, before: Snapshot) -> tuple[Snapshot, RoundReport]:
        """One round. `before` is left untouched, so that an interrupted round can be run again.

        An engine may hand replies out as finite before it has checked them, so that the host does not wait for a GPU
        until the round is over. If one was not finite, the round is run again by an engine that checks first; changes
        that the store has not committed by then are dropped.
        """
        report, terms = RoundReport(), list[LossTerms]()

        def attempt() -> Snapshot:
            report.clear()
            terms.clear()
            start = replace(before, round=before.round + 1, ledger=before.ledger.next(self.keeps))
            return self.at_round(start.round)._play(start, report, terms)

        def check_losses() -> None:
            found = loss_terms(terms)
            if self.policy.on_bad_loss == "stop":
                check_loss_terms(before.round + 1, found)
            report.terms.update({k: numbers for k, numbers in found.items() if k in report.answered})

        with gc_paused():  # a tenth of the host's work with 50 small clients
            return retry_if_nonfinite(self.engine, self.store, before, attempt, check_losses), report

    def at_round(self, round: int) -> Federation:
        """The federation with the parts of a round."""
        return replace(self, method=self.method.at_round(max(round, 1), self.task)[0])

    def close(self, snap: Snapshot) -> tuple[Snapshot, RoundReport]:
        """Exchanges at the end of the run."""
        snap, report = replace(snap, ledger=snap.ledger.next(self.keeps)), RoundReport()
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

    def _play(self, snap: Snapshot, report: RoundReport, terms: list[LossTerms]) -> Snapshot:
        """The round, up to what is reported of the clients' loss terms: reading these waits for a GPU."""
        round = snap.round
        participants, away = self.sampling.sampled(round), self.sampling.absent(round)
        self.phase("plan", round)
        if round == 1:
            snap = self._exchange(snap, "before training", participants, report)
        snap = self._exchange(snap, "before round", participants, report)
        self.phase("before round", round)
        mark = self.store.mark()
        inbox = self._train(snap, participants, report, terms)
        self.phase("train", round)
        asked, answered = frozenset(inbox.asked), frozenset(inbox.answered)
        snap = replace(snap, sampled=asked, answered=answered, absent=frozenset(away) | (asked - answered))
        if not self.policy.enough(len(asked), len(answered)):
            report.below_quorum = True
            self.store.back_to(mark)
            return replace(snap, seen=snap.seen | answered)
        for part in self.method.parts:
            if part.name in inbox.shares:
                _, _, shared = inbox.shares[part.name]
                after = part.collect(self._server(snap, part), shared.of(part.name))
                snap = self._apply(snap, part, after, part.edits_model)
        self.phase("after training", round)
        self._stand_in(snap, inbox.messages, report)
        self.phase("stand-ins", round)
        for part in self.method.merge_order if inbox.messages.clients else ():
            after = part.merge(self._server(snap, part), inbox.messages.of(part.name))
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
        return replace(snap, seen=snap.seen | answered)

    def _train(self, snap: Snapshot, participants: list[int], report: RoundReport, terms: list[LossTerms]) -> Inbox:
        """The clients' replies, and what exchanges after training brought; loss terms go into `terms`."""
        received, asked = self.received(snap), [k for k in participants if self.rows[k]]
        replies = _begun(self.engine.train(snap.round, received, asked, self.store.get))
        self._send_down(snap, "train", participants, received)
        inbox = self._inbox(snap, "train", asked, self._training(snap.round, received), report)
        for part in self.method.parts:
            if part.exchange is not None and part.exchange.when == "after training":
                declared = {part.name: part.shares}
                contract = self._sharing(snap.round, received, part)
                inbox.shares[part.name] = (declared, contract, self._messages(declared))
        inbox.take_in_all(replies)
        report.answered.update(inbox.answered)
        # Crossing a process may have mixed them.
        terms[:] = [some.in_order_of([part.name for part in self.method.parts]) for some in inbox.terms]
        if inbox.bad_losses and not inbox.answered:
            raise NotFiniteError(f"round {snap.round}: no client answered well; {_first(report)}")
        return inbox

    def _send_down(self, snap: Snapshot, phase: str, clients: Iterable[int], received: Received) -> None:
        snap.ledger.down(snap.round, phase, clients, "model", "weights", MODEL, self._public(received.model))
        for part in self.method.parts:
            sent = received.parts.get(part.name, {})
            for name, artefact in part.broadcasts.items():
                if name in sent:
                    snap.ledger.down(snap.round, phase, clients, part.name, name, artefact, sent[name])

    def _stand_in(self, snap: Snapshot, messages: RoundMessages, report: RoundReport) -> None:
        """What trains for absent clients, by the server's own engine and outside the ledger: nothing travels.

        A stand-in has a state of its own (kept under ~client), so that what it adds to the server's sums stays
        accounted for; the client it stands for does not lend it anything.
        """
        found: dict[int, StandIn] = {}
        owner: dict[int, str] = {}
        for part in self.method.parts:
            for k, stand_in in part.stand_ins(self._server(snap, part), sorted(snap.absent)).items():
                if k in owner:
                    raise UserError(
                        f"client {k}: expected one part that stands in for it, found {owner[k]} and {part.name}; "
                        "remove one of them from the method"
                    )
                owner[k] = part.name
                if len(stand_in.x):
                    found[k] = stand_in
        if not found:
            return
        received = self.received(snap)
        mine = {k: self.store.entries[~k] for k in found if ~k in self.store.entries}
        contract = self._training(snap.round, received, sealed=False)
        unlisted = replace(snap, ledger=Ledger())
        inbox = self._inbox(unlisted, "stand-ins", list(found), contract, report, messages)
        for reply in self.engine.stand_in(snap.round, received, found, mine):
            rows = found[reply.client].rows if reply.client in found else reply.rows
            if inbox.take_in(reply._replace(rows=rows, client_state={})):
                self.store.put(~reply.client, reply.client_state)

    def _exchange(self, snap: Snapshot, when: str, participants: list[int], report: RoundReport) -> Snapshot:
        """Every part's exchange that is due now."""
        once = when in ("before training", "at the end")
        for part in self.method.parts:
            due = part.exchange
            if due is not None and due.when == when and (once or snap.round % due.every == 0):
                snap = self._share(snap, part, due, self._who(snap, part, due, participants), report)
        return snap

    def _who(self, snap: Snapshot, part: Part, due: Exchange, participants: list[int]) -> list[int]:
        away = set(self.sampling.absent(max(snap.round, 1)))
        chosen = participants if due.who != "all" else [k for k in range(self.task.clients) if k not in away]
        known = _met(snap, part) if due.who == "newcomers" else frozenset()
        return [k for k in chosen if self.rows[k] and k not in known]

    def _share(self, snap: Snapshot, part: Part, due: Exchange, clients: list[int], report: RoundReport) -> Snapshot:
        """One part's exchange: the model goes down where it is needed, artefacts come up, the server collects."""
        received = self.received(snap)
        if due.model:
            snap.ledger.down(snap.round, due.when, clients, "model", "weights", MODEL, self._public(snap.model))
        else:
            received = received._replace(model={})
        inbox = self._inbox(snap, due.when, clients, self._sharing(snap.round, received, part), report, part=part)
        inbox.take_in_all(self.engine.share(snap.round, part.name, received, clients, self.store.get))
        if due.who == "newcomers":
            met = _met(snap, part) | inbox.answered
            snap = replace(snap, met=snap.met | {part.name: met})
        after = part.collect(self._server(snap, part), inbox.messages.of(part.name))
        return self._apply(snap, part, after, part.owner or part.edits_model)

    def _inbox(
        self,
        snap: Snapshot,
        phase: str,
        asked: list[int],
        contract: ContractOf,
        report: RoundReport,
        messages: RoundMessages | None = None,
        part: Part | None = None,
    ) -> Inbox:
        """An empty inbox: of training, or of one part's exchange."""
        declared = {part.name: part.shares} if part else {p.name: p.sends for p in self.method.parts}
        messages = messages or self._messages(declared)
        names, clients, classes = self.model.shared, self.task.clients, self.task.classes
        return Inbox(
            snap,
            phase,
            asked,
            clients,
            classes,
            declared,
            contract,
            messages,
            report,
            self.store,
            self.method,
            names,
            self.policy,
        )

    def _messages(self, declared: Declared) -> RoundMessages:
        return RoundMessages(declared, self.weigh_by_rows, self.engine.add_up)

    def _training(self, round: int, received: Received, sealed: bool = True) -> ContractOf:
        return self.expected.training(self.method, self.model, self.task, round, received, sealed)

    def _sharing(self, round: int, received: Received, part: Part) -> ContractOf:
        return self.expected.sharing(self.method, self.model, self.task, round, received, part.name)

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
        parts = snap.parts | ({part.name: after.part_state} if after.part_state else {})
        # Tensors that never leave the clients are in no message: the server's stay as they are.
        return replace(snap, model=snap.model | after.model if self.model.private else after.model, parts=parts)

    def _public(self, model: State) -> State:
        return {name: t for name, t in model.items() if name not in self.model.private}


def _met(snap: Snapshot, part: Part) -> frozenset[int]:
    """Clients that are no newcomers to a part's exchange; before its first, those that have taken part in a round."""
    return snap.met.get(part.name, snap.seen)


def _first(report: RoundReport) -> str:
    """The first refusal in words."""
    refusal = report.refused[0]
    return f"client {refusal.client}: {refusal.reason}"


def _begun(outcomes: Iterator[ClientReply | CohortReply]) -> Iterator[ClientReply | CohortReply]:
    """The same, with the first one asked for now: a device trains while the host goes on with other things."""
    first = list(islice(outcomes, 1))

    def all_of() -> Iterator[ClientReply | CohortReply]:
        while first:
            yield first.pop()  # and nobody keeps it
        yield from outcomes

    return all_of()
