"""Recorded messages as the server has them after opening: codes (bf16, int8, topk) hide nothing from who knows them."""

from __future__ import annotations

from dataclasses import replace

from unskew.base.errors import UserError
from unskew.engines.engine import EngineContext
from unskew.protocol.update_codec import OutgoingUpdate
from unskew.results.recorded_messages import RecordedRound
from unskew.wire.ledger import LedgerMessage


def opened(recorded: RecordedRound, context: EngineContext) -> RecordedRound:
    """The same round with the update in the place of its code; a code that does not fit is named."""
    method, _ = context.at_round(recorded.round)
    if not method.seals:
        return recorded
    part, artefact, _ = method.update
    found = {k: _update(recorded, k, context) for k in recorded.senders}

    def whole(sent: LedgerMessage) -> LedgerMessage:
        entry = sent.entry
        coded = (entry.direction, entry.phase, entry.part, entry.artefact) == ("up", "train", part, artefact)
        return sent._replace(value=found[entry.client]) if coded else sent

    return replace(recorded, sent=tuple(whole(sent) for sent in recorded.sent))


def _update(recorded: RecordedRound, client: int, context: EngineContext) -> dict:
    method, _ = context.at_round(recorded.round)
    message, start = recorded.of(client, "up"), recorded.of(client, "down")["model"]["weights"]
    try:
        for part in reversed(method.seals):
            message = part.open(OutgoingUpdate(message, method.update, start, context.model.shared))  # type: ignore[arg-type]
    except UserError as error:
        raise UserError(f"round {recorded.round}, client {client}: {error}") from error
    return message[method.update.part][method.update.artefact]  # type: ignore[return-value]
