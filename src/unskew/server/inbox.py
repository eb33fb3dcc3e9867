"""What clients sent is taken in: declared, entered in the ledger, refused or added up, their state kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unskew.base.errors import UserError
from unskew.base.per_client import PerClient
from unskew.base.tree import Message, size_in_bytes, unstack
from unskew.protocol.method import Method
from unskew.protocol.part import Artefact
from unskew.protocol.update_codec import OutgoingUpdate
from unskew.server.client_store import ClientStore
from unskew.server.messages import Inbox, in_order, is_finite
from unskew.server.snapshot import Report, Snapshot
from unskew.wire.ledger import number
from unskew.wire.message import ClientReply, CohortReply, LossTerms

SAMPLES = Artefact("counts", reduce="sum")
Declared = dict[str, dict[str, Artefact]]  # part -> artefact -> declaration


@dataclass(frozen=True)
class Intake:
    """The messages of one phase of a round."""

    snap: Snapshot
    phase: str
    declared: Declared
    inbox: Inbox
    report: Report
    store: ClientStore
    rows: PerClient[int]
    method: Method
    shared: tuple[str, ...]  # tensors of the model that are trained and travel

    @property
    def _trains(self) -> bool:
        return self.phase == "train"

    def take_in_cohorts(
        self, found: Iterator[ClientReply | CohortReply], terms: list[LossTerms]
    ) -> Iterator[ClientReply]:
        """Take in cohorts that need not be split, and give out all other clients, whose message is to be taken in.

        With 50 small clients views of every tensor of every client were a third of the host's work in a round.
        """
        for some in found:
            if isinstance(some, CohortReply) and self._at_once(some):
                terms.append(LossTerms(some.clients, some.at, some.terms))
                self._take_in_rows(some)
                continue
            for outcome in some.each() if isinstance(some, CohortReply) else (some,):
                terms.append(
                    LossTerms([outcome.client], [0], {name: term[None] for name, term in outcome.terms.items()})
                )
                yield outcome
                del outcome
            del some

    def take_in(self, outcome: ClientReply, acceptable: bool = True) -> bool:
        """One client's message; whether it was added up."""
        client, message = outcome.client, in_order(outcome.message, self.declared)
        opened, ledger = self._open(client, message) if self._trains else message, self.snap.ledger
        # What was coded can be finite and give a number that is not: then what the engine has seen does not count.
        finite = outcome.finite if opened is message else None
        # Both or neither: state that belongs to a refused share must not stay with the client.
        fine = acceptable and (outcome.finite or is_finite(outcome.shared))
        taken = bool(fine) and self.inbox.add(client, self.rows[client], opened, finite)
        entry = (self.snap.round, self.phase, client)
        if self._trains:
            ledger.up(*entry, "model", "samples", SAMPLES, number(self.rows[client]))
        for part, sent in message.items():
            for name, value in sent.items():
                ledger.up(*entry, part, name, self.declared[part][name], value)
        if taken and outcome.mine:
            self.store.put(client, self.store.get(client) | outcome.mine)
        elif not taken and client not in self.report.dropped:
            self.report.dropped.append(client)
        return taken

    def _at_once(self, some: CohortReply) -> bool:
        """Whether no client's message has to be opened, looked at or kept."""
        recorded = any(self.snap.ledger.keeps(self.snap.round, k) for k in some.clients)
        return some.alike and not self.method.seals and not recorded

    def _take_in_rows(self, some: CohortReply) -> None:
        """As `take_in` for one client after another in training, all of them acceptable."""
        clients, message = some.clients, in_order(some.message, self.declared)
        self.inbox.add_rows(clients, [self.rows[k] for k in clients], message, some.at)
        columns = [("model", "samples", SAMPLES.kind, number(0).nbytes)]
        for part, sent in message.items():
            for name, value in sent.items():
                columns.append((part, name, self.declared[part][name].kind, size_in_bytes(value) // len(clients)))
        self.snap.ledger.up_rows(self.snap.round, self.phase, clients, columns)
        states = unstack(some.mine, len(clients))
        for k, i in zip(clients, some.at) if some.mine else ():
            self.store.put(k, self.store.get(k) | states[i])

    def _open(self, client: int, message: Message) -> Message:
        """The message as it was before the parts sealed it; one that cannot be opened stops the run by name."""
        try:
            for part in reversed(self.method.seals):
                message = part.open(OutgoingUpdate(message, self.method.update, self.snap.model, self.shared))
        except UserError as error:
            raise UserError(f"client {client}: {error}") from error
        return message
