"""Decodes recorded messages as the server does: an attacker that knows the code (bf16, int8, topk) can do the same."""

from __future__ import annotations

from dataclasses import replace

from unskew.base.errors import UserError
from unskew.engines.engine import EngineContext
from unskew.protocol.update_codec import OutgoingUpdate
from unskew.results.recorded_messages import RecordedRound
from unskew.wire.ledger import LedgerMessage


def decode_round(recorded: RecordedRound, context: EngineContext) -> RecordedRound:
    """The same round with every encoded update decoded; a UserError names the client whose message cannot be."""
    method, _ = context.at_round(recorded.round)
    if not method.sealing_parts:
        return recorded
    part, artefact, _ = method.update_location
    updates = {k: _decode_update(recorded, k, context) for k in recorded.senders}

    def decoded(sent: LedgerMessage) -> LedgerMessage:
        entry = sent.entry
        is_update = (entry.direction, entry.phase, entry.part, entry.artefact) == ("up", "train", part, artefact)
        return sent._replace(value=updates[entry.client]) if is_update else sent

    return replace(recorded, sent=tuple(decoded(sent) for sent in recorded.sent))


def _decode_update(recorded: RecordedRound, client: int, context: EngineContext) -> dict:
    method, _ = context.at_round(recorded.round)
    message, start = recorded.of(client, "up"), recorded.of(client, "down")["model"]["weights"]
    try:
        for part in reversed(method.sealing_parts):
            message = part.open(OutgoingUpdate(message, method.update_location, start, context.model.shared))  # type: ignore[arg-type]
    except UserError as error:
        raise UserError(f"round {recorded.round}, client {client}: {error}") from error
    return message[method.update_location.part][method.update_location.artefact]  # type: ignore[return-value]
