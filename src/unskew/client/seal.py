"""Encoding a message before it is sent: every part's `seal`, for one client or a stack of clients."""

from __future__ import annotations

from functools import partial

from unskew.base.tree import Message, State, Tree, stack
from unskew.base.vmap import vmap
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import to_device_async
from unskew.client.feed import cast_floats
from unskew.protocol.part import Sizes
from unskew.protocol.update_codec import OutgoingUpdate
from unskew.wire.requests_and_replies import Received


def seal_draws(context: ClientContext, round: int, client: int) -> dict[str, State]:
    """The "seal" draws of the sealing parts, for one client."""
    method, work = context.at_round(round)
    sizes = Sizes(len(context.client_rows.index[client]), 0, work.batch, context.task.classes, {})
    drawn = {part.name: context.plan.part_draws(part, "seal", round, client, sizes) for part in method.sealing_parts}
    return {
        name: {key: to_device_async(t, context.device) for key, t in cast_floats(draws, context.dtype).items()}
        for name, draws in drawn.items()
    }


def seal_one(
    context: ClientContext,
    round: int,
    received: Received,
    message: Message,
    client_state: Tree,
    draws: dict[str, State],
) -> tuple[Message, Tree]:
    """The sealed message and the new state of one client; vmap maps it over many.

    The parts' float fields are Python numbers here, not tensors, because the shapes of code tensors depend on them.
    """
    method, _ = context.at_round(round)
    for part in method.sealing_parts:
        state_and_draws = client_state.get(part.name, {}), draws.get(part.name, {})
        message, state = part.seal(
            OutgoingUpdate(message, method.update_location, received.model, context.model.shared, *state_and_draws)
        )
        client_state = client_state | ({part.name: state} if state else {})
    return message, client_state


def seal_many(
    context: ClientContext, round: int, received: Received, message: Message, client_state: Tree, clients: list[int]
) -> tuple[Message, Tree]:
    """`seal_one` on a stack of clients."""
    if not context.at_round(round)[0].sealing_parts:
        return message, client_state
    draws = stack(seal_draws(context, round, k) for k in clients)
    return vmap(partial(seal_one, context, round, received))(message, client_state, draws)
