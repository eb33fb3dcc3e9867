"""The last thing before a message leaves: every part's `seal`, for one client or a stack of them."""

from __future__ import annotations

from functools import partial

from unskew.base.tree import Message, State, Tree, stack
from unskew.base.vmap import vmap
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import to_device_async
from unskew.client.feed import floats_as
from unskew.protocol.part import Sizes
from unskew.protocol.update_codec import OutgoingUpdate
from unskew.wire.message import Received


def seal_draws(context: ClientContext, round: int, client: int) -> dict[str, State]:
    """Random tensors of the parts that seal, for one client."""
    method, work = context.at_round(round)
    sizes = Sizes(len(context.client_rows.index[client]), 0, work.batch, context.task.classes, {})
    drawn = {part.name: context.plan.part_draws(part, "seal", round, client, sizes) for part in method.seals}
    return {
        name: {key: to_device_async(t, context.device) for key, t in floats_as(draws, context.dtype).items()}
        for name, draws in drawn.items()
    }


def seal_one(
    context: ClientContext, round: int, received: Received, message: Message, mine: Tree, draws: dict[str, State]
) -> tuple[Message, Tree]:
    """What leaves and what is kept; or mapped over many. Fields are plain numbers: the size of a code hangs on them."""
    method, _ = context.at_round(round)
    for part in method.seals:
        own = mine.get(part.name, {}), draws.get(part.name, {})
        message, state = part.seal(OutgoingUpdate(message, method.update, received.model, context.model.shared, *own))
        mine = mine | ({part.name: state} if state else {})
    return message, mine


def seal_many(
    context: ClientContext, round: int, received: Received, message: Message, mine: Tree, clients: list[int]
) -> tuple[Message, Tree]:
    """The same on a stack of clients."""
    if not context.at_round(round)[0].seals:
        return message, mine
    draws = stack(seal_draws(context, round, k) for k in clients)
    return vmap(partial(seal_one, context, round, received))(message, mine, draws)
