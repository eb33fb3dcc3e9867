"""The server's inbox: every reply is checked, entered in the ledger, and refused with a reason or added up.

Nothing of a reply is used before its round, sender, number of rows, names, types and shapes are as agreed. Its numbers
are checked next; a reply that is refused then stays in the ledger, because it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from unskew.base.errors import UserError
from unskew.base.tree import Message, State, Value, as_state, size_in_bytes, unstack
from unskew.protocol.method import Method
from unskew.protocol.part import Artefact, Part
from unskew.protocol.update_codec import OutgoingUpdate, UpdateLocation
from unskew.server.client_store import ClientStore
from unskew.server.expected_replies import ContractOf
from unskew.server.round_messages import RoundMessages, in_order, is_finite
from unskew.server.snapshot import Refusal, RoundReport, Snapshot
from unskew.wire.contract import RefusedError
from unskew.wire.ledger import number
from unskew.wire.message import ClientReply, CohortReply, LossTerms, decode_reply, reply_header

SAMPLES = Artefact("counts", reduce="sum")
Declared = dict[str, dict[str, Artefact]]  # part -> artefact -> declaration
MOST_TERMS = 64
NUMBER_NAME = re.compile(r"[\w ./-]{1,40}")
TERM_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LONGEST_REASON = 300  # characters; names in it were chosen by a client
UNKNOWN = -1  # stands in the ledger for a client that does not exist


@dataclass(frozen=True)
class ReplyPolicy:
    """When a reply is refused beyond what the contract says, and how many a round needs."""

    quorum: float | None = None  # share of the sampled clients that must answer; None: one answer or stand-in
    on_bad_loss: Literal["stop", "refuse"] = "stop"
    max_norm: float | Mapping[str, float] | None = None  # of the model's update, or by part/artefact
    max_rows: int = 10_000_000  # that a client may report

    def norm_limits(self, method: Method) -> Mapping[str, float]:
        """The largest norm of each artefact that has one, by part/artefact."""
        if self.max_norm is None or isinstance(self.max_norm, Mapping):
            return self.max_norm or {}
        part, artefact, _ = method.update
        return {f"{part}/{artefact}": self.max_norm}

    def enough(self, sampled: int, answered: int) -> bool:
        """Whether a round counts."""
        return self.quorum is None or sampled == 0 or (answered > 0 and answered / sampled >= self.quorum)


@dataclass(frozen=True)
class Inbox:
    """The replies of one phase of a round."""

    snap: Snapshot
    phase: str
    asked: Collection[int]  # clients that may answer
    clients: int  # in the whole federation
    classes: int
    declared: Declared
    contract: ContractOf
    messages: RoundMessages
    report: RoundReport
    store: ClientStore
    method: Method
    names: tuple[str, ...]  # tensors of the model that are trained and travel
    policy: ReplyPolicy
    shares: dict[str, tuple[Declared, ContractOf, RoundMessages]] = field(default_factory=dict)  # sent with training
    terms: list[LossTerms] = field(default_factory=list)
    replied: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    refused_first: set[int] = field(default_factory=set)  # clients that this inbox refused and has not yet taken in
    bad_losses: set[int] = field(default_factory=set)  # clients refused for a loss that is not finite

    def take_in_all(self, replies: Iterator[ClientReply | CohortReply]) -> None:
        """All replies, in the order in which they come."""
        for some in replies:
            if isinstance(some, CohortReply):
                if self._at_once(some):
                    self._take_in_cohort(some)
                else:
                    for reply in some.each():
                        self.take_in(reply)
                        del reply
            else:
                self.take_in(some)
            del some  # a view of its whole cohort's messages, which would live while the next cohort trains

    def take_in_bytes(self, data: bytes, sender: int) -> bool:
        """The same for bytes from a sender that the transport knows: their number is checked before they are parsed."""
        try:
            client, round, rows = reply_header(data)
            if client != sender:
                raise RefusedError(f"client: expected {sender}, which sent this, found {str(client)[:40]}")
            self._check_sender(client, round, rows)
            contracts = [self.contract(rows), *(contract(rows) for _, contract, _ in self.shares.values())]
            reply = decode_reply(data, sum(contract.most_bytes for contract in contracts))
        except RefusedError as error:
            self._refuse(sender, str(error), len(data))
            return False
        return self.take_in(reply, known_sender=True)

    def take_in(self, reply: ClientReply, known_sender: bool = False) -> bool:
        """One client's reply; whether it was added up."""
        try:
            if not known_sender:
                self._check_sender(reply.client, reply.round, reply.rows)
            self._check_form(reply)
        except RefusedError as error:
            self._refuse(reply.client, str(error), size_in_bytes({"": reply.message, " ": reply.shared}))  # type: ignore[dict-item]
            return False
        client, message = reply.client, in_order(reply.message, self.declared)
        # Also of a reply that is refused below: by default a loss that is not finite stops the run all the same.
        self.terms.append(LossTerms([client], [0], {name: term[None] for name, term in reply.terms.items()}))
        self._enter(client, reply.rows, message)
        shared = {part: in_order({part: sent}, self.shares[part][0]) for part, sent in reply.shared.items()}
        try:
            message = self._checked(reply, message)
        except RefusedError as error:
            self._refuse(client, str(error), 0)
            self._enter_shared(client, shared)
            return False
        self.messages.add(client, reply.rows, message)
        for part, sent in shared.items():
            self.shares[part][2].add(client, reply.rows, sent)
        self._enter_shared(client, shared)
        self.answered.add(client)
        if client in self.refused_first:  # by an answer to another round, before this one
            self.refused_first.remove(client)
            self.report.dropped.remove(client)
        if reply.client_state:
            self.store.put(client, self.store.get(client) | reply.client_state)
        return True

    def _check_sender(self, client: int, round: int, rows: int) -> None:
        """Round, client, first answer, number of rows."""
        if round != self.snap.round:
            raise RefusedError(f"round: expected an answer to round {self.snap.round}, found one to {round}")
        if not 0 <= client < self.clients:
            raise RefusedError(f"client: expected a number in 0..{self.clients - 1}, found {client}")
        if client not in self.asked:
            raise RefusedError("client: expected one that was asked, found another")
        if client in self.replied:
            raise RefusedError("client: expected one answer, found a second one")
        self.replied.add(client)
        if not 1 <= rows <= self.policy.max_rows:
            raise RefusedError(f"rows: expected 1 to {self.policy.max_rows:,}, found {rows:,}")

    def _check_form(self, reply: ClientReply) -> None:
        """Names, types and shapes of all that was sent."""
        self.contract(reply.rows).check(reply.message)
        contracts = {part: contract(reply.rows) for part, (_, contract, _) in self.shares.items()}
        contracts = {part: contract for part, contract in contracts.items() if contract.specs}
        if not isinstance(reply.shared, dict) or reply.shared.keys() != contracts.keys():
            found = sorted(reply.shared) if isinstance(reply.shared, dict) else type(reply.shared).__name__
            raise RefusedError(f"exchanges after training: expected {sorted(contracts)}, found {found}")
        for part, contract in contracts.items():
            contract.check({part: reply.shared[part]})
        self._check_terms(reply.terms)

    def _check_terms(self, terms: State) -> None:
        """A number for parts with a loss, and what they log beside it: `ce` and `flea kd`."""
        if not isinstance(terms, dict) or len(terms) > MOST_TERMS:
            raise RefusedError(f"loss terms: expected at most {MOST_TERMS} by name, found {type(terms).__name__}")
        parts = {part.name for part in self.method.parts if type(part).loss is not Part.loss}
        for name, term in terms.items():
            part, _, number = name.partition(" ")
            known = part in parts and (not number or NUMBER_NAME.fullmatch(number))
            if not known or not isinstance(term, Tensor) or term.ndim or term.dtype not in TERM_TYPES:
                raise RefusedError(f"loss terms: expected a number of one of the parts, found {name[:40]!r}")

    def _checked(self, reply: ClientReply, message: Message) -> Message:
        """The message as it was before the parts sealed it, all numbers acceptable."""
        if self.policy.on_bad_loss == "refuse" and not is_finite({"": dict(reply.terms)}):
            self.bad_losses.add(reply.client)
            bad = [f"{name} {float(term)}" for name, term in reply.terms.items() if not bool(torch.isfinite(term))]
            raise RefusedError(f"loss: expected finite terms, found {', '.join(bad)}")
        opened = self._open(message) if self.phase == "train" else message
        # A code can be finite and stand for a number that is not: then the engine's word does not count.
        known_finite = reply.finite if opened is message else None
        # All or nothing: state that belongs to a refused share must not stay with the client.
        if not (known_finite or is_finite(opened)) or not (reply.finite or is_finite(reply.shared)):
            raise RefusedError("numbers: expected finite ones, found nan or infinity")
        for declared, sent in [
            (self.declared, opened),
            *((self.shares[p][0], {p: m}) for p, m in reply.shared.items()),
        ]:
            self._check_labels(declared, sent)
        if limits := self.policy.norm_limits(self.method):
            place = self.method.update if self.phase in ("train", "stand-ins") else None
            for where, norm in _norms({**opened, **reply.shared}, place, self.snap.model):
                if where in limits and not norm <= limits[where]:
                    raise RefusedError(f"{where}: expected a norm of at most {limits[where]:g}, found {norm:g}")
        return opened

    def _check_labels(self, declared: Declared, message: Message) -> None:
        """Integer labels must be valid class numbers: any other would crash the training that uses them."""
        for part, sent in message.items():
            for name, value in sent.items():
                if declared[part][name].kind == "labels":
                    for t in tree_leaves(value):
                        if (
                            not t.is_floating_point()
                            and t.numel()
                            and not 0 <= int(t.min()) <= int(t.max()) < self.classes
                        ):
                            raise RefusedError(
                                f"{part}/{name}: expected labels in 0..{self.classes - 1}, found {int(t.min())} to "
                                f"{int(t.max())}"
                            )

    def _open(self, message: Message) -> Message:
        """The message as it was before the parts sealed it."""
        try:
            for part in reversed(self.method.seals):
                message = part.open(OutgoingUpdate(message, self.method.update, self.snap.model, self.names))
        except UserError as error:
            raise RefusedError(str(error)) from error
        return message

    def _enter(self, client: int, rows: int, message: Message) -> None:
        entry, ledger = (self.snap.round, self.phase, client), self.snap.ledger
        if self.phase == "train":
            ledger.up(*entry, "model", "samples", SAMPLES, number(rows))
        for part, sent in message.items():
            for name, value in sent.items():
                ledger.up(*entry, part, name, self.declared[part][name], value)

    def _enter_shared(self, client: int, shared: dict[str, Message]) -> None:
        for part, message in shared.items():
            for name, value in message[part].items():
                entry = (self.snap.round, "after training", client)
                self.snap.ledger.up(*entry, part, name, self.shares[part][0][part][name], value)

    def _refuse(self, client: int, reason: str, bytes: int) -> None:
        """A row with the reason, in the ledger and in the round's report."""
        reason = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}..."
        client = client if 0 <= client < self.clients else UNKNOWN
        self.snap.ledger.refuse(self.snap.round, self.phase, client, reason, bytes)
        self.report.refused.append(Refusal(client, self.phase, reason))
        if client in self.asked and client not in self.answered and client not in self.report.dropped:
            self.report.dropped.append(client)
            self.refused_first.add(client)

    def _at_once(self, some: CohortReply) -> bool:
        """Whether a cohort can be taken in whole: nothing to open, to look at or to keep client by client."""
        fine = (
            some.alike
            and not self.method.seals
            and self.policy.max_norm is None
            and self.policy.on_bad_loss == "stop"
            and not any(self.snap.ledger.keeps(self.snap.round, k) for k in some.clients)
        )
        if not fine or self.shares or some.round != self.snap.round or self._labels_are_sent:
            return False
        clients = set(some.clients)
        known = len(clients) == len(some.clients) and clients <= set(self.asked) and not clients & self.replied
        sizes = set(some.rows)  # most cohorts have few: a look at each client would be a tenth of a round's host time
        if not known or not 1 <= min(sizes) <= max(sizes) <= self.policy.max_rows:
            return False
        contract = self.contract(max(sizes))
        if any(self.contract(n) is not contract for n in sizes):
            return False
        try:
            contract.check(some.message, axes=1)
        except RefusedError:
            return False  # client by client, so that each is refused by name
        return True

    @property
    def _labels_are_sent(self) -> bool:
        return any(artefact.kind == "labels" for names in self.declared.values() for artefact in names.values())

    def _take_in_cohort(self, some: CohortReply) -> None:
        """As `take_in` for one client after another, all of them acceptable.

        With 50 small clients views of every tensor of every client were a third of the host's work in a round.
        """
        self.terms.append(LossTerms(some.clients, some.at, some.terms))
        clients, message = some.clients, in_order(some.message, self.declared)
        self.messages.add_rows(clients, some.rows, message, some.at)
        columns = [("model", "samples", SAMPLES.kind, number(0).nbytes)]
        for part, sent in message.items():
            for name, value in sent.items():
                columns.append((part, name, self.declared[part][name].kind, size_in_bytes(value) // len(clients)))
        self.snap.ledger.up_rows(self.snap.round, self.phase, clients, columns)
        self.replied.update(clients)
        self.answered.update(clients)
        states = unstack(some.client_state, len(clients))
        for k, i in zip(clients, some.at) if some.client_state else ():
            self.store.put(k, self.store.get(k) | states[i])


def _norms(message: Message, place: UpdateLocation | None, model: State) -> Iterator[tuple[str, float]]:
    """The norm of every artefact: of the model relative to the one that was sent, statistics included, of others as
    they are."""
    for part, sent in message.items():
        for name, value in sent.items():
            if place is not None and (part, name) == (place.part, place.artefact) and not place.relative:
                value = {key: t - model[key] for key, t in as_state(value).items() if t.is_floating_point()}
            yield f"{part}/{name}", _norm(value)


def _norm(value: Value) -> float:
    squares = [t.double().pow(2).sum() for t in tree_leaves(value) if t.is_floating_point()]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
