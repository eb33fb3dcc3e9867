"""Outgoing updates for tests of `seal` and `open`: before, after, and with tampered tensors."""

import torch
from torch import Tensor

from unskew.base.tree import State
from unskew.protocol.part import Part
from unskew.protocol.update_codec import OutgoingUpdate, UpdateLocation

LOCATION = UpdateLocation("average", "weights", False)


def outgoing(final: State, start: State, part_state: State | None = None, seed: int = 0) -> OutgoingUpdate:
    """The update of a client whose trained model is `final`."""
    draws = {"seed": torch.tensor(seed)}
    return OutgoingUpdate({"average": {"weights": final}}, LOCATION, start, tuple(start), part_state or {}, draws)


def round_trip(part: Part, sent: OutgoingUpdate) -> tuple[State, State, State]:
    """The tensors as sent, the tensors as decoded by the server, and the client's new state."""
    message, state = part.seal(sent)
    opened = part.open(OutgoingUpdate(message, sent.place, sent.start, sent.names))
    return message["average"]["weights"], opened["average"]["weights"], state  # type: ignore[return-value]


def tampered(part: Part, sent: OutgoingUpdate, **changes: Tensor | None) -> OutgoingUpdate:
    """The sealed update with some tensors replaced, or removed if None."""
    message, _ = part.seal(sent)
    wire: State = message["average"]["weights"] | changes  # type: ignore[operator,assignment]
    wire = {name: t for name, t in wire.items() if t is not None}
    return OutgoingUpdate({"average": {"weights": wire}}, sent.place, sent.start, sent.names)
