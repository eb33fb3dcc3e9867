"""The order of a round: which clients are asked, what they are sent, and how their replies change the server.

1 plan · 2 exchanges before the round · 3 `at_round`, `down` · 4 training, exchanges after it, `up`, `seal`, `open` ·
5 `stand_ins` · 6 `merge` (the owner of the model last) · 7 `step` · 8 exchanges after the merge, with the new model.
Evaluation and checkpoint follow in the runner. An empty cohort skips 4; with no message and no stand-in the model stays
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from unskew.base import keyed_rng
from unskew.base.errors import UserError
from unskew.base.gc_pause import gc_paused
from unskew.base.per_client import PerClient
from unskew.client.client_rows import to_device
from unskew.models.model import Model
from unskew.protocol.method import Method, Task
from unskew.protocol.part import Part, check_declared
from unskew.protocol.server_view import Server
from unskew.server.client_store import ClientStore
from unskew.server.exchanges import collect_after_training, expect_after_training, run_exchanges
from unskew.server.expected_replies import ContractForRows, ExpectedReplies
from unskew.server.inbox import Inbox
from unskew.server.ledger_entries import log_broadcasts
from unskew.server.loss_check import NotFiniteError, check_loss_terms, terms_by_client
from unskew.server.reply_policy import Declared, ReplyPolicy
from unskew.server.retry_if_nonfinite import retry_if_nonfinite
from unskew.server.round_messages import RoundMessages
from unskew.server.sampling import Sampling
from unskew.server.snapshot import RoundReport, Snapshot
from unskew.server.stand_ins import train_stand_ins
from unskew.wire.ledger import Ledger, RecordFilter, record_no_values
from unskew.wire.requests_and_replies import ClientReply, CohortReply, LossTerms, Received

if TYPE_CHECKING:
    from unskew.engines.engine import Engine

PhaseCallback = Callable[[str, int], None]


@dataclass(frozen=True)
class Federation:
    """Everything a run depends on and never changes."""

    method: Method
    model: Model
    task: Task
    sampling: Sampling
    engine: Engine
    store: ClientStore
    weigh_by_rows: bool
    rows: PerClient[int]  # number of rows of each client
    should_record: RecordFilter = record_no_values  # which clients' messages are recorded in full
    on_phase: PhaseCallback = lambda name, round: None  # called with each phase's name when it ends
    policy: ReplyPolicy = field(default_factory=ReplyPolicy)
    expected: ExpectedReplies = field(default_factory=ExpectedReplies)

    def start(self) -> Snapshot:
        """The snapshot before round 1."""
        device = self.engine.device
        parts = {p.name: s for p in self.method.parts if (s := p.server_init(self.model, self.task.read_by(p.name)))}
        moved = to_device(parts, device)
        model = {name: tensor.to(device) for name, tensor in self.model.initial.items()}
        return Snapshot(0, model, moved, frozenset(), Ledger())

    def run_round(self, before: Snapshot) -> tuple[Snapshot, RoundReport]:
        """One round. `before` is left untouched, so that an interrupted round can be run again.

        An engine may hand replies out as finite before it has checked them, so that the host does not wait for a GPU
        until the round is over. If one was not finite, the round is run again by an engine that checks first; the
        store's uncommitted changes are discarded.
        """
        report, terms = RoundReport(), list[LossTerms]()

        def attempt() -> Snapshot:
            report.clear()
            terms.clear()
            start = replace(before, round=before.round + 1, ledger=before.ledger.for_next_round(self.should_record))
            return self.at_round(start.round)._attempt_round(start, report, terms)

        def check_losses() -> None:
            by_client = terms_by_client(terms)
            if self.policy.on_bad_loss == "stop":
                check_loss_terms(before.round + 1, by_client)
            report.terms.update({k: numbers for k, numbers in by_client.items() if k in report.answered})

        with gc_paused():  # garbage collection took a tenth of the host's work with 50 small clients
            return retry_if_nonfinite(self.engine, self.store, before, attempt, check_losses), report

    def at_round(self, round: int) -> Federation:
        """The federation with the parts of a round."""
        return replace(self, method=self.method.at_round(max(round, 1), self.task)[0])

    def run_final_exchanges(self, snap: Snapshot) -> tuple[Snapshot, RoundReport]:
        """Exchanges at the end of the run."""
        snap, report = replace(snap, ledger=snap.ledger.for_next_round(self.should_record)), RoundReport()
        participants = self.sampling.sampled(max(snap.round, 1))
        return run_exchanges(self.at_round(snap.round), snap, "at the end", participants, report), report

    def received(self, snap: Snapshot) -> Received:
        """The model and every part's broadcasts, checked against what is declared."""
        parts = {}
        for part in self.method.parts:
            sent = part.down(self.server_view(snap, part))
            check_declared(part.name, part.broadcasts, sent, "down")
            if sent:
                parts[part.name] = sent
        return Received(snap.model, parts)

    def _attempt_round(self, snap: Snapshot, report: RoundReport, terms: list[LossTerms]) -> Snapshot:
        """The whole round except for the clients' loss terms in the report, because reading them waits for a GPU."""
        round = snap.round
        participants, absent = self.sampling.sampled(round), self.sampling.absent(round)
        self.on_phase("plan", round)
        if round == 1:
            snap = run_exchanges(self, snap, "before training", participants, report)
        snap = run_exchanges(self, snap, "before round", participants, report)
        self.on_phase("before round", round)
        savepoint = self.store.savepoint()
        inbox = self._train(snap, participants, report, terms)
        self.on_phase("train", round)
        asked, answered = frozenset(inbox.asked), frozenset(inbox.answered)
        snap = replace(snap, sampled=asked, answered=answered, absent=frozenset(absent) | (asked - answered))
        if not self.policy.reaches_quorum(len(asked), len(answered)):
            report.below_quorum = True
            self.store.rollback_to(savepoint)
            return replace(snap, seen=snap.seen | answered)
        snap = collect_after_training(self, snap, inbox)
        self.on_phase("after training", round)
        train_stand_ins(self, snap, inbox.messages, report)
        self.on_phase("stand-ins", round)
        for part in self.method.merge_order if inbox.messages.clients else ():
            after = part.merge(self.server_view(snap, part), inbox.messages.of(part.name))
            snap = self.apply(snap, part, after, "merge")
        self.on_phase("merge", round)
        for part in self.method.parts:
            snap = self.apply(snap, part, part.step(self.server_view(snap, part)), "step")
        self.on_phase("step", round)
        snap = run_exchanges(self, snap, "after merge", participants, report)
        for part in self.method.parts:
            numbers = part.report(self.server_view(snap, part))
            report.numbers.update({f"{part.name}/{name}": value for name, value in numbers.items()})
        self.on_phase("after merge", round)
        return replace(snap, seen=snap.seen | answered)

    def _train(self, snap: Snapshot, participants: list[int], report: RoundReport, terms: list[LossTerms]) -> Inbox:
        """The clients' replies, with those to exchanges after training; loss terms go into `terms`."""
        received, asked = self.received(snap), [k for k in participants if self.rows[k]]
        replies = _start_first(self.engine.train(snap.round, received, asked, self.store.get))
        log_broadcasts(snap, participants, self.method, self.model, received)
        inbox = self.new_inbox(snap, "train", asked, self.training_contract(snap.round, received), report)
        expect_after_training(self, snap.round, received, inbox)
        inbox.receive_all(replies)
        report.answered.update(inbox.answered)
        # A reply that crossed a process may list its terms in another order.
        terms[:] = [some.in_order_of([part.name for part in self.method.parts]) for some in inbox.terms]
        if inbox.bad_losses and not inbox.answered:
            first = next(refusal for refusal in report.refused if refusal.client in inbox.bad_losses)
            raise NotFiniteError(f"round {snap.round}: no reply was accepted; client {first.client}: {first.reason}")
        return inbox

    def new_inbox(
        self,
        snap: Snapshot,
        phase: str,
        asked: list[int],
        contract: ContractForRows,
        report: RoundReport,
        messages: RoundMessages | None = None,
        part: Part | None = None,
    ) -> Inbox:
        """An empty inbox for replies to training, or to one part's exchange."""
        declared = {part.name: part.shares} if part else {p.name: p.sends for p in self.method.parts}
        messages, trained = messages or self.new_messages(declared), self.model.shared
        task, store, method = self.task, self.store, self.method
        return Inbox(
            snap, phase, asked, task, declared, contract, messages, report, store, method, trained, self.policy
        )

    def new_messages(self, declared: Declared) -> RoundMessages:
        """An empty collection of messages with these declarations."""
        return RoundMessages(declared, self.weigh_by_rows, self.engine.add_up)

    def training_contract(self, round: int, received: Received, sealed: bool = True) -> ContractForRows:
        """The form that replies to training must have."""
        return self.expected.training(self.method, self.model, self.task, round, received, sealed)

    def server_view(self, snap: Snapshot, part: Part) -> Server:
        """The server as a part's hooks see it."""

        def generator(*key: int | str) -> np.random.Generator:
            return keyed_rng.generator(self.sampling.seed, snap.round, "server", part.name, *key)

        state, task = snap.parts.get(part.name, {}), self.task.read_by(part.name)
        return Server(snap.model, state, snap.round, self.model, task, generator)

    def apply(self, snap: Snapshot, part: Part, after: Server, hook: str) -> Snapshot:
        """The snapshot with a hook's changes. Only the owner may change the model, and after the merge any part that
        declares it."""
        if after.model is not snap.model and not (part.owner or (part.edits_model and hook != "merge")):
            raise UserError(f"part {part.name}: {hook}() changed the model, which another part owns; {_remedy(hook)}")
        parts = snap.parts | ({part.name: after.part_state} if after.part_state else {})
        # Tensors that never leave the clients are in no message, so the server keeps its own.
        return replace(snap, model=snap.model | after.model if self.model.private else after.model, parts=parts)


def _remedy(hook: str) -> str:
    if hook == "merge":
        return "change it in step() and set edits_model = True if this is intended"
    return "set edits_model = True if this is intended"


def _start_first(replies: Iterator[ClientReply | CohortReply]) -> Iterator[ClientReply | CohortReply]:
    """The same replies, the first of them requested now: a device trains while the host does other work."""
    first = list(islice(replies, 1))

    def all_replies() -> Iterator[ClientReply | CohortReply]:
        while first:
            yield first.pop()  # popped, so that this generator does not keep the reply's memory alive
        yield from replies

    return all_replies()
