"""Exchanges: clients send what a part shares, apart from their trained weights, and the server collects it.

They run before a round's training or after its merge, or once at the start or end of a run, each with its own inbox.
Those "after training" need no request: their artefacts come with the replies to training.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from unskew.protocol.part import Exchange, Part
from unskew.server.expected_replies import ContractForRows
from unskew.server.inbox import Inbox
from unskew.server.ledger_entries import log_model
from unskew.server.snapshot import RoundReport, Snapshot
from unskew.wire.requests_and_replies import Received

if TYPE_CHECKING:
    from unskew.server.federation import Federation


def run_exchanges(
    federation: Federation, snap: Snapshot, when: str, participants: list[int], report: RoundReport
) -> Snapshot:
    """Run every part's exchange that is due at this point of the round."""
    once = when in ("before training", "at the end")
    for part in federation.method.parts:
        exchange = part.exchange
        if exchange is not None and exchange.when == when and (once or snap.round % exchange.every == 0):
            clients = _clients_of(federation, snap, part, exchange, participants)
            snap = _run_exchange(federation, snap, part, exchange, clients, report)
    return snap


def expect_after_training(federation: Federation, round: int, received: Received, inbox: Inbox) -> None:
    """Prepare the inbox of a training for the artefacts of exchanges after it."""
    for part in federation.method.parts:
        if part.exchange is not None and part.exchange.when == "after training":
            declared = {part.name: part.shares}
            contract = exchange_contract(federation, round, received, part)
            inbox.shares[part.name] = (declared, contract, federation.new_messages(declared))


def collect_after_training(federation: Federation, snap: Snapshot, inbox: Inbox) -> Snapshot:
    """Let parts collect the artefacts that came with the replies to training."""
    for part in federation.method.parts:
        if part.name in inbox.shares:
            _, _, shared = inbox.shares[part.name]
            after = part.collect(federation.server_view(snap, part), shared.of(part.name))
            snap = federation.apply(snap, part, after, "collect")
    return snap


def exchange_contract(federation: Federation, round: int, received: Received, part: Part) -> ContractForRows:
    """The form that replies to a part's exchange must have."""
    return federation.expected.sharing(federation.method, federation.model, federation.task, round, received, part.name)


def _clients_of(
    federation: Federation, snap: Snapshot, part: Part, exchange: Exchange, participants: list[int]
) -> list[int]:
    """The clients with rows that an exchange asks."""
    absent = set(federation.sampling.absent(max(snap.round, 1)))
    chosen = participants if exchange.who != "all" else [k for k in range(federation.task.clients) if k not in absent]
    known = _already_met(snap, part) if exchange.who == "newcomers" else frozenset()
    return [k for k in chosen if federation.rows[k] and k not in known]


def _run_exchange(
    federation: Federation, snap: Snapshot, part: Part, exchange: Exchange, clients: list[int], report: RoundReport
) -> Snapshot:
    """One part's exchange: the model goes down if the part needs it, artefacts come up, the server collects them."""
    received = federation.received(snap)
    if exchange.model:
        log_model(snap, exchange.when, clients, federation.model, snap.model)
    else:
        received = received._replace(model={})
    contract = exchange_contract(federation, snap.round, received, part)
    inbox = federation.new_inbox(snap, exchange.when, clients, contract, report, part=part)
    inbox.receive_all(federation.engine.share(snap.round, part.name, received, clients, federation.store.get))
    if exchange.who == "newcomers":
        met = _already_met(snap, part) | inbox.answered
        snap = replace(snap, newcomers_met=snap.newcomers_met | {part.name: met})
    after = part.collect(federation.server_view(snap, part), inbox.messages.of(part.name))
    return federation.apply(snap, part, after, "collect")


def _already_met(snap: Snapshot, part: Part) -> frozenset[int]:
    """Clients that are no newcomers to a part's exchange; before its first, those that have taken part in a round."""
    return snap.newcomers_met.get(part.name, snap.seen)
