"""An outgoing update with one tensor or more, and a federation's messages as they travelled."""

from typing import Any

import torch
from torch import Tensor

from unskew.base.tree import State
from unskew.protocol.part import Part
from unskew.protocol.update_codec import OutgoingUpdate, UpdateLocation

PLACE = UpdateLocation("average", "weights", False)


def outgoing(final: State, start: State, mine: State | None = None, seed: int = 0, **keys: Any) -> OutgoingUpdate:
    """A client that ended training at `final`."""
    draws = {"seed": torch.tensor(seed)}
    return OutgoingUpdate({"average": {"weights": final}}, PLACE, start, tuple(start), mine or {}, draws, **keys)


def travelled(part: Part, sent: OutgoingUpdate) -> tuple[State, State, State]:
    """What was on the wire, what the server holds after opening it, and the client's new state."""
    message, state = part.seal(sent)
    opened = part.open(OutgoingUpdate(message, sent.place, sent.start, sent.names))
    return message["average"]["weights"], opened["average"]["weights"], state  # type: ignore[return-value]


def tampered(part: Part, sent: OutgoingUpdate, **changes: Tensor | None) -> OutgoingUpdate:
    """The sealed update with some tensors replaced, or left out."""
    message, _ = part.seal(sent)
    wire: State = message["average"]["weights"] | changes  # type: ignore[operator,assignment]
    wire = {name: t for name, t in wire.items() if t is not None}
    return OutgoingUpdate({"average": {"weights": wire}}, sent.place, sent.start, sent.names)
