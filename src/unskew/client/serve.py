"""The only entry point of a client: a request comes in, a reply goes out.

A worker process, a cluster's actor and a node of a real federation all call `serve` or, if they receive bytes,
`serve_bytes`. The client's state is never sent: it is an argument, and the new state is returned with the reply.
"""

from __future__ import annotations

from typing import NamedTuple

from unskew.base.tree import Message, State, Tree, drop_padding
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import ClientRows, to_device
from unskew.client.feed import BatchFeed, SingleClientFeed
from unskew.client.round import client_round, with_private
from unskew.client.seal import seal_draws, seal_one
from unskew.client.share import share_draws, share_one
from unskew.wire.requests_and_replies import ClientReply, Received, Request, decode_request, encode_reply


class ServedReply(NamedTuple):
    """A reply, and how many rows were processed for it."""

    reply: ClientReply
    trained: int  # without filler
    computed: int  # with the filler of partial batches


def serve(context: ClientContext, request: Request, state: Tree) -> ServedReply:
    """A client's reply to a request; an empty state marks a newcomer."""
    state = to_device(state, context.device) if state else context.newcomer_state(request.client)
    if request.task == "share":
        return ServedReply(_share(context, request, state), 0, 0)
    return train(context, context.client_rows, request, state)


def serve_bytes(context: ClientContext, data: bytes, state: Tree) -> tuple[bytes, Tree]:
    """`serve` for a request as bytes: returns the reply as bytes, and the client's new state."""
    request = decode_request(data)
    state = state or context.newcomer_state(request.client)
    request = request._replace(received=Received(*to_device(tuple(request.received), context.device)))  # type: ignore[arg-type]
    reply = serve(context, request, state).reply
    return encode_reply(reply), state | reply.client_state


def train(context: ClientContext, client_rows: ClientRows, request: Request, state: Tree) -> ServedReply:
    """One client's round. If `client_rows` are not the context's, it is a stand-in, which neither shares nor seals."""
    round, client, received = request.round, request.client, request.received
    own_rows = client_rows is context.client_rows
    method, _ = context.at_round_on_device(round)
    feed = SingleClientFeed(BatchFeed(context, client_rows, round, received, [client], [state]))

    def after(final: State, client_state: Tree) -> tuple[Message, Tree]:
        shared: Message = {}
        for part in context.after_training_parts if own_rows else ():
            sent, new_state = _share_part(context, round, part, client, final, client_state)
            shared |= {part: sent} if sent else {}
            client_state = client_state | ({part: new_state} if new_state else {})
        return shared, client_state

    message, shared, new_state, terms = client_round(method, context.model, received, state, feed, after)
    if own_rows:
        message, new_state = seal_one(context, round, received, message, new_state, seal_draws(context, round, client))
    rows = len(client_rows.index[client])
    reply = ClientReply(client, round, rows, drop_padding(message), new_state, terms, shared)
    return ServedReply(reply, feed.real_rows, feed.steps * feed.work.batch)


def _share(context: ClientContext, request: Request, state: Tree) -> ClientReply:
    """One part's exchange outside training."""
    round, client, part = request.round, request.client, request.part
    model = with_private(request.received, state).model
    sent, new_state = _share_part(context, round, part, client, model, state)
    rows = len(context.client_rows.index[client])
    return ClientReply(client, round, rows, {part: sent} if sent else {}, {part: new_state} if new_state else {})


def _share_part(
    context: ClientContext, round: int, part: str, client: int, model: State, client_state: Tree
) -> tuple[dict, State]:
    draws = share_draws(context, part, round, client)
    facts, index = context.client_rows.facts(client), context.client_rows.index[client].to(context.device)
    sent, new_state = share_one(context, part, round, model, client_state.get(part, {}), draws, facts, index)
    return drop_padding(sent), new_state
