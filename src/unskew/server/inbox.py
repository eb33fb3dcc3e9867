"""The server's inbox: every reply is checked, entered in the ledger, and refused with a reason or added up.

Nothing of a reply is used before its round, sender, number of rows, names, types and shapes are as agreed. Its numbers
are checked next; a reply that is refused then stays in the ledger, because it was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import torch

from unskew.base.tree import Message, size_in_bytes, unstack
from unskew.protocol.method import Method, Task
from unskew.server.client_store import ClientStore
from unskew.server.expected_replies import ContractForRows
from unskew.server.ledger_entries import SAMPLES, log_reply, log_shared
from unskew.server.reply_policy import (
    Declared,
    ReplyPolicy,
    check_labels,
    check_norms,
    check_shared,
    check_terms,
    unsealed,
)
from unskew.server.round_messages import RoundMessages, in_declared_order, is_finite
from unskew.server.snapshot import Refusal, RoundReport, Snapshot
from unskew.wire.contract import RefusedError
from unskew.wire.ledger import row_count_tensor
from unskew.wire.requests_and_replies import ClientReply, CohortReply, LossTerms, decode_reply, reply_header

SharesByPart = dict[str, tuple[Declared, ContractForRows, RoundMessages]]
MAX_REASON = 300  # characters, because a reason may quote names that a client chose
UNKNOWN_CLIENT = -1  # stands in the ledger for a client that does not exist


@dataclass(frozen=True)
class Inbox:
    """The replies of one phase of a round."""

    snap: Snapshot
    phase: str
    asked: Collection[int]  # clients that may answer
    task: Task
    declared: Declared
    contract: ContractForRows
    messages: RoundMessages
    report: RoundReport
    store: ClientStore
    method: Method
    trained_names: tuple[str, ...]  # tensors of the model that are trained and sent
    policy: ReplyPolicy
    shares: SharesByPart = field(default_factory=dict)  # of exchanges after training
    terms: list[LossTerms] = field(default_factory=list)
    replied: set[int] = field(default_factory=set)  # clients that replied to this round, accepted or refused
    answered: set[int] = field(default_factory=set)  # clients whose reply was added up
    refused_clients: set[int] = field(default_factory=set)  # asked clients that this inbox refused and never accepted
    bad_losses: set[int] = field(default_factory=set)  # clients refused for a loss that is not finite

    def receive_all(self, replies: Iterator[ClientReply | CohortReply]) -> None:
        """Receive all replies in the order in which they come."""
        for reply in replies:
            if not isinstance(reply, CohortReply):
                self.receive(reply)
            elif self._can_receive_as_cohort(reply):
                self._receive_cohort(reply)
            else:
                for one in reply.each():
                    self.receive(one)
                    del one
            del reply  # a view of its whole cohort's messages, which would live while the next cohort trains

    def receive_bytes(self, data: bytes, sender: int) -> bool:
        """As `receive`, for bytes from a sender that the transport identified; their size is checked before parsing."""
        try:
            client, round, rows = reply_header(data)
            if client != sender:
                raise RefusedError(f"client: expected {sender}, which sent this, found {str(client)[:40]}")
            self._check_sender(client, round, rows)
            contracts = [self.contract(rows), *(contract(rows) for _, contract, _ in self.shares.values())]
            reply = decode_reply(data, sum(contract.max_bytes for contract in contracts))
        except RefusedError as error:
            self._refuse(sender, str(error), len(data))
            return False
        return self.receive(reply, known_sender=True)

    def receive(self, reply: ClientReply, known_sender: bool = False) -> bool:
        """Receive one client's reply and return whether it was added up."""
        try:
            if not known_sender:
                self._check_sender(reply.client, reply.round, reply.rows)
            self._check_form(reply)
        except RefusedError as error:
            self._refuse(reply.client, str(error), size_in_bytes({"": reply.message, " ": reply.shared}))  # type: ignore[dict-item]
            return False
        client, message = reply.client, in_declared_order(reply.message, self.declared)
        # Also of a reply that is refused below: by default a loss that is not finite stops the run all the same.
        self.terms.append(LossTerms([client], [0], {name: term[None] for name, term in reply.terms.items()}))
        log_reply(self.snap, self.phase, client, reply.rows, message, self.declared)
        shared = {part: in_declared_order({part: sent}, self.shares[part][0]) for part, sent in reply.shared.items()}
        try:
            message = self._unseal_and_check(reply, message)
        except RefusedError as error:
            self._refuse(client, str(error), 0)
            log_shared(self.snap, client, shared, self.shares)
            return False
        self.messages.add(client, reply.rows, message)
        for part, sent in shared.items():
            self.shares[part][2].add(client, reply.rows, sent)
        log_shared(self.snap, client, shared, self.shares)
        self.answered.add(client)
        if client in self.refused_clients:  # for an earlier answer to another round
            self.refused_clients.remove(client)
            self.report.refused_clients.remove(client)
        if reply.client_state:
            self.store.put(client, self.store.get(client) | reply.client_state)
        return True

    def _check_sender(self, client: int, round: int, rows: int) -> None:
        """Check the round, the client, that it has not answered yet, and its number of rows."""
        if round != self.snap.round:
            raise RefusedError(f"round: expected an answer to round {self.snap.round}, found one to {round}")
        if not 0 <= client < self.task.clients:
            raise RefusedError(f"client: expected a number in 0..{self.task.clients - 1}, found {client}")
        if client not in self.asked:
            raise RefusedError(f"client: expected one that was asked, found {client}")
        if client in self.replied:
            raise RefusedError("client: expected one answer, found a second one")
        self.replied.add(client)
        if not 1 <= rows <= self.policy.max_rows:
            raise RefusedError(f"rows: expected 1 to {self.policy.max_rows:,}, found {rows:,}")

    def _check_form(self, reply: ClientReply) -> None:
        """Check names, types and shapes of everything that was sent."""
        self.contract(reply.rows).check(reply.message)
        check_shared(reply.shared, {part: contract(reply.rows) for part, (_, contract, _) in self.shares.items()})
        check_terms(reply.terms, self.method)

    def _unseal_and_check(self, reply: ClientReply, message: Message) -> Message:
        """The message as it was before the parts sealed it, or a refusal if a number in the reply is unacceptable."""
        if self.policy.on_bad_loss == "refuse" and not is_finite({"": dict(reply.terms)}):
            self.bad_losses.add(reply.client)
            bad = [f"{name} {float(term)}" for name, term in reply.terms.items() if not bool(torch.isfinite(term))]
            raise RefusedError(f"loss: expected finite terms, found {', '.join(bad)}")
        opened, sent_model = message, self.snap.model
        if self.phase == "train":
            opened = unsealed(message, self.method, sent_model, self.trained_names)
        # A finite code may decode to a number that is not finite, so the engine's check does not cover it.
        known_finite = reply.finite if opened is message else None
        # All or nothing: a client must not keep state that belongs to a refused share.
        if not (known_finite or is_finite(opened)) or not (reply.finite or is_finite(reply.shared)):
            raise RefusedError("numbers: expected finite ones, found nan or infinity")
        check_labels(self.declared, opened, self.task.classes)
        for part, sent in reply.shared.items():
            check_labels(self.shares[part][0], {part: sent}, self.task.classes)
        if limits := self.policy.norm_limits(self.method):
            location = self.method.update_location if self.phase in ("train", "stand-ins") else None
            check_norms({**opened, **reply.shared}, limits, location, sent_model)
        return opened

    def _refuse(self, client: int, reason: str, bytes: int) -> None:
        """Enter the refusal with its reason in the ledger and in the round's report."""
        reason = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}..."
        client = client if 0 <= client < self.task.clients else UNKNOWN_CLIENT
        self.snap.ledger.log_refusal(self.snap.round, self.phase, client, reason, bytes)
        self.report.refused.append(Refusal(client, self.phase, reason))
        if client in self.asked and client not in self.answered and client not in self.report.refused_clients:
            self.report.refused_clients.append(client)
            self.refused_clients.add(client)

    def _can_receive_as_cohort(self, cohort: CohortReply) -> bool:
        """Whether nothing of a cohort's reply must be unsealed, checked or recorded client by client."""
        uniform = (
            cohort.can_stay_stacked
            and not self.method.sealing_parts
            and self.policy.max_norm is None
            and self.policy.on_bad_loss == "stop"
            and not any(self.snap.ledger.should_record(self.snap.round, k) for k in cohort.clients)
        )
        if not uniform or self.shares or cohort.round != self.snap.round or self._expects_labels:
            return False
        clients = set(cohort.clients)
        known = len(clients) == len(cohort.clients) and clients <= set(self.asked) and not clients & self.replied
        # Most cohorts have few distinct sizes; checking every client took a tenth of a round's host time.
        sizes = set(cohort.rows)
        if not known or not 1 <= min(sizes) <= max(sizes) <= self.policy.max_rows:
            return False
        contract = self.contract(max(sizes))
        if any(self.contract(n) is not contract for n in sizes):
            return False
        try:
            contract.check(cohort.message, axes=1)
        except RefusedError:
            return False  # client by client, so that each is refused by name
        return True

    @property
    def _expects_labels(self) -> bool:
        return any(artefact.kind == "labels" for names in self.declared.values() for artefact in names.values())

    def _receive_cohort(self, cohort: CohortReply) -> None:
        """As `receive` for one client after another, all of them acceptable.

        With 50 small clients views of every tensor of every client were a third of the host's work in a round.
        """
        self.terms.append(LossTerms(cohort.clients, cohort.rows_at, cohort.terms))
        clients, message = cohort.clients, in_declared_order(cohort.message, self.declared)
        self.messages.add_rows(clients, cohort.rows, message, cohort.rows_at)
        columns = [("model", "samples", SAMPLES.kind, row_count_tensor(0).nbytes)]
        for part, sent in message.items():
            for name, value in sent.items():
                columns.append((part, name, self.declared[part][name].kind, size_in_bytes(value) // len(clients)))
        self.snap.ledger.log_up_many(self.snap.round, self.phase, clients, columns)
        self.replied.update(clients)
        self.answered.update(clients)
        states = unstack(cohort.client_state, len(clients))
        for k, i in zip(clients, cohort.rows_at) if cohort.client_state else ():
            self.store.put(k, self.store.get(k) | states[i])
