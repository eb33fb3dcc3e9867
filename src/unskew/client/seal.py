"""The last thing before a message leaves: every part's `seal`, for one client or a stack of them."""

from __future__ import annotations

from functools import partial

from unskew.base.tree import Message, State, Tree, stack
from unskew.base.vmap import vmap
from unskew.client.feed import floats_as
from unskew.client.round import Received
from unskew.engines.engine import Setting, sent
from unskew.protocol.part import Sizes
from unskew.protocol.update_codec import Letter


def seal_draws(setting: Setting, round: int, client: int) -> dict[str, State]:
    """Random tensors of the parts that seal, for one client."""
    method, work = setting.planned(round)
    sizes = Sizes(len(setting.source.index[client]), 0, work.batch, setting.task.classes, {})
    drawn = {part.name: setting.plan.part_draws(part, "seal", round, client, sizes) for part in method.seals}
    return {
        name: {key: sent(t, setting.device) for key, t in floats_as(draws, setting.dtype).items()}
        for name, draws in drawn.items()
    }


def seal_one(
    setting: Setting, round: int, received: Received, message: Message, mine: Tree, draws: dict[str, State]
) -> tuple[Message, Tree]:
    """What leaves and what is kept; or mapped over many. Fields are plain numbers: the size of a code hangs on them."""
    method, _ = setting.planned(round)
    for part in method.seals:
        own = mine.get(part.name, {}), draws.get(part.name, {})
        message, state = part.seal(Letter(message, method.update, received.model, setting.model.shared, *own))
        mine = mine | ({part.name: state} if state else {})
    return message, mine


def seal_many(
    setting: Setting, round: int, received: Received, message: Message, mine: Tree, clients: list[int]
) -> tuple[Message, Tree]:
    """The same on a stack of clients."""
    if not setting.planned(round)[0].seals:
        return message, mine
    draws = stack(seal_draws(setting, round, k) for k in clients)
    return vmap(partial(seal_one, setting, round, received))(message, mine, draws)
