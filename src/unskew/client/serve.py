"""The only entry to a client: a request comes in, a reply goes out.

A worker process, a cluster's actor and a node of a real federation all call `serve` or, where bytes arrive,
`serve_bytes`. The client's state stays on its side of the wall: it is an argument, and comes back with the reply.
"""

from __future__ import annotations

from typing import NamedTuple

from unskew.base.tree import Message, State, Tree, pack
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import ClientRows, to_device
from unskew.client.feed import BatchFeed, SingleClientFeed
from unskew.client.round import client_round, with_private
from unskew.client.seal import seal_draws, seal_one
from unskew.client.share import share_draws, share_one
from unskew.wire.message import ClientReply, Received, Request, decode_request, encode_reply


class ServedReply(NamedTuple):
    """A reply, and how many rows it took: trained on, and computed with those that fill a last batch."""

    reply: ClientReply
    trained: int
    computed: int


def serve(context: ClientContext, request: Request, state: Tree) -> ServedReply:
    """What a client answers; an empty state is that of a newcomer."""
    state = to_device(state, context.device) if state else context.newcomer(request.client)
    if request.task == "share":
        return ServedReply(_share(context, request, state), 0, 0)
    return train(context, context.client_rows, request, state)


def serve_bytes(context: ClientContext, data: bytes, state: Tree) -> tuple[bytes, Tree]:
    """The same for a request in bytes: the reply in bytes, and the client's new state."""
    request = decode_request(data)
    state = state or context.newcomer(request.client)
    request = request._replace(received=Received(*to_device(tuple(request.received), context.device)))  # type: ignore[arg-type]
    reply = serve(context, request, state).reply
    return encode_reply(reply), state | reply.client_state


def train(context: ClientContext, client_rows: ClientRows, request: Request, state: Tree) -> ServedReply:
    """One client's round. Rows other than the context's are a stand-in's, which shares and seals nothing."""
    round, client, received = request.round, request.client, request.received
    own = client_rows is context.client_rows
    method, _ = context.at_round_on_device(round)
    feed = SingleClientFeed(BatchFeed(context, client_rows, round, received, [client], [state]))

    def after(final: State, mine: Tree) -> tuple[Message, Tree]:
        shared: Message = {}
        for part in context.after_training if own else ():
            sent, kept = _share_part(context, round, part, client, final, mine)
            shared |= {part: sent} if sent else {}
            mine = mine | ({part: kept} if kept else {})
        return shared, mine

    message, shared, kept, terms = client_round(method, context.model, received, state, feed, after)
    if own:
        message, kept = seal_one(context, round, received, message, kept, seal_draws(context, round, client))
    rows = len(client_rows.index[client])
    reply = ClientReply(client, round, rows, pack(message), kept, terms, shared)
    return ServedReply(reply, feed.needed, feed.steps * feed.work.batch)


def _share(context: ClientContext, request: Request, state: Tree) -> ClientReply:
    """One part's exchange outside training."""
    round, client, part = request.round, request.client, request.part
    model = with_private(request.received, state).model
    sent, kept = _share_part(context, round, part, client, model, state)
    rows = len(context.client_rows.index[client])
    return ClientReply(client, round, rows, {part: sent} if sent else {}, {part: kept} if kept else {})


def _share_part(
    context: ClientContext, round: int, part: str, client: int, model: State, mine: Tree
) -> tuple[dict, State]:
    draws = share_draws(context, part, round, client)
    facts, index = context.client_rows.facts(client), context.client_rows.index[client].to(context.device)
    sent, kept = share_one(context, part, round, model, mine.get(part, {}), draws, facts, index)
    return pack(sent), kept
