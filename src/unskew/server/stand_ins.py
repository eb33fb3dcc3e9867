"""Stand-ins: training on the server for absent clients, outside the ledger because nothing is sent.

A stand-in has a state of its own, stored under ~client, so that its contribution to the server's sums is accounted for.
It never uses the state of the client it replaces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.protocol.server_view import StandIn
from unskew.server.round_messages import RoundMessages
from unskew.server.snapshot import RoundReport, Snapshot
from unskew.wire.ledger import Ledger

if TYPE_CHECKING:
    from unskew.server.federation import Federation


def train_stand_ins(federation: Federation, snap: Snapshot, messages: RoundMessages, report: RoundReport) -> None:
    """Train the parts' stand-ins for absent clients with the server's own engine and add their messages up."""
    stand_ins = _stand_ins_of_parts(federation, snap)
    if not stand_ins:
        return
    received, store = federation.received(snap), federation.store
    states = {k: store.entries[~k] for k in stand_ins if ~k in store.entries}
    contract = federation.training_contract(snap.round, received, sealed=False)
    unlisted = replace(snap, ledger=Ledger())
    inbox = federation.new_inbox(unlisted, "stand-ins", list(stand_ins), contract, report, messages)
    for reply in federation.engine.stand_in(snap.round, received, stand_ins, states):
        rows = stand_ins[reply.client].rows if reply.client in stand_ins else reply.rows
        if inbox.receive(reply._replace(rows=rows, client_state={})):
            store.put(~reply.client, reply.client_state)


def _stand_ins_of_parts(federation: Federation, snap: Snapshot) -> dict[int, StandIn]:
    """Stand-ins with rows, by the client they replace."""
    stand_ins: dict[int, StandIn] = {}
    owner: dict[int, str] = {}
    for part in federation.method.parts:
        for k, stand_in in part.stand_ins(federation.server_view(snap, part), sorted(snap.absent)).items():
            if k in owner:
                raise UserError(
                    f"client {k}: expected at most one part to provide a stand-in, found {owner[k]} and {part.name}; "
                    "remove one of them from the method"
                )
            owner[k] = part.name
            if len(stand_in.x):
                stand_ins[k] = stand_in
    return stand_ins
