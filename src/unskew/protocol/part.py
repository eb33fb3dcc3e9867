"""The part protocol: a method is a list of parts, and a part is a frozen record with optional hooks.

Fields are hyper-parameters: typed, documented, validated. During a step every float field is a 0-dim tensor. Hooks are
pure: what a part must remember it returns, and the runner stores it. The order of the hooks in a round is in
`server/federation.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.tree import Message, PartState, State, Value

if TYPE_CHECKING:
    from unskew.models.model import Model
    from unskew.protocol.client_view import Client, End, Newcomer
    from unskew.protocol.method import Method, Task
    from unskew.protocol.server_view import Messages, Server, StandIn
    from unskew.protocol.step_view import Batch, View
    from unskew.protocol.update_codec import OutgoingUpdate
    from unskew.protocol.work import Work

Kind = Literal[
    "weights", "gradients", "features", "labels", "counts", "statistics", "synthetic", "digest", "raw", "control"
]


@dataclass(frozen=True)
class Artefact:
    """What may leave: its kind, and how far it may be added up on the way."""

    kind: Kind
    reduce: Literal["mean", "sum", "rows", "each"] = "each"  # rows, of a broadcast: seen by `streams` and by no loss
    lasting: bool = False  # sent to a client only when changed since its last copy
    update: bool = False  # of kind weights: relative to the received model already, not a model


def check_declared(part: str, declared: dict[str, Artefact], sent: dict[str, Value], hook: str) -> None:
    """Nothing leaves undeclared: refuse by name."""
    for name in sent:
        if name not in declared:
            raise UserError(
                f"part {part}: {hook}() returned {name!r}, which the part does not declare; expected "
                f"{', '.join(declared) or 'nothing'}; declare it as an Artefact with its kind"
            )


@dataclass(frozen=True)
class Exchange:
    """When a part's `share` runs, on whom, and whether the client needs the current model for it."""

    when: Literal["before training", "before round", "after training", "after merge", "at the end"]
    who: Literal["participants", "newcomers", "all"] = "participants"
    every: int = 1  # rounds; counts from round `every`
    model: bool = True

    def __post_init__(self) -> None:
        if self.every != 1 and self.when in ("before training", "at the end"):
            raise ValueError(f"an exchange {self.when} happens once: every cannot be chosen")
        if self.who == "newcomers" and self.when == "at the end":
            raise ValueError("an exchange at the end has no newcomers: everybody who took part was seen before")
        if self.when == "after training" and (self.who != "participants" or self.every != 1):
            raise ValueError("an exchange after training is part of a client's round: who and every cannot be chosen")


@dataclass(frozen=True)
class Stream:
    """Further rows, a batch of them per step: `x` [n, ...] ready for the model, `y` [n] or [n, classes]."""

    x: Tensor
    y: Tensor
    order: Literal["cycle", "uniform", "join"] = "cycle"  # join: the rows belong to the epoch


@dataclass(frozen=True)
class Sizes:
    """What a part may know when it asks for random numbers."""

    rows: int
    steps: int
    batch: int
    classes: int
    streams: dict[str, int]


class Part:
    """Every hook is optional. Subclass, declare fields, register with `@part(name)`; nothing deeper inherits."""

    name: ClassVar[str] = ""
    owner: ClassVar[bool] = False  # merges the model; exactly one per method
    objective: ClassVar[bool] = False  # the main loss; exactly one per method
    edits_model: ClassVar[bool] = False  # may change the model in `step` or `collect` without owning it
    sends: ClassVar[dict[str, Artefact]] = {}
    broadcasts: ClassVar[dict[str, Artefact]] = {}
    shares: ClassVar[dict[str, Artefact]] = {}
    neutral: ClassVar[dict[str, Any]] = {}  # values at which the part changes nothing, bit for bit
    exchange: ClassVar[Exchange | None] = None
    travels_as: ClassVar[str] = ""  # what `seal` makes of the update, in words and bytes

    # set-up
    def build(self, method: Method, work: Work) -> Self:
        """Meet the siblings and the work, refuse clashes before any data are read, return the part."""
        return self

    def client_init(self, model: Model, client: Newcomer) -> PartState:
        """State of a client never seen before; lazy, so a function of its arguments alone."""
        return {}

    def server_init(self, model: Model, task: Task) -> PartState:
        """State of the server before round 1; like a client's, tensors by name that may be grouped once."""
        return {}

    def at_round(self, round: int, work: Work) -> tuple[Part, Work]:
        """The part and the work in force in this round; it may be another part if neither keeps state."""
        return self, work

    # training
    def streams(self, received: dict[str, Any], part_state: PartState) -> dict[str, Stream]:
        """Further rows for this round; an empty one is not seen by the loss."""
        return {}

    def draws(
        self, when: Literal["init", "steps", "share", "seal"], sizes: Sizes, generator: np.random.Generator
    ) -> dict[str, Any]:
        """Random arrays or tensors; for "steps" the leading axis is the step. Those of "init" are a client's for the
        whole run: `client_init` and every `share` see them."""
        return {}

    def label_stats(self, counts: Tensor) -> State:
        """Tensors that the loss derives from the label counts, computed once a round; read `view.label_stats(self)`."""
        return {}

    def batch(self, batch: Batch, received: dict[str, Any], train: bool) -> Batch:
        """Change the batch before the loss (no gradient) and, with train=False, before evaluation."""
        return batch

    def loss(self, view: View) -> Tensor | tuple[Tensor, State] | None:
        """A scalar; the terms of all parts add up. Scalars returned beside it are logged, as means over the steps."""
        return None

    # messages
    def down(self, server: Server) -> dict[str, Value]:
        """Artefacts to broadcast, the same for every client."""
        return {}

    def up(self, end: End) -> tuple[dict[str, Value], PartState]:
        """Artefacts to send after training, and the client's new state; an empty one keeps the old.

        Names, types and shapes may depend on the round, on what was received and on the number of the client's rows,
        and not on its state or the numbers in its rows: every reply is held to what zeros give (client/dry_run.py).
        Rows that belong together, such as features and labels, have the same number of rows.
        """
        return {}, end.part_state

    def share(self, client: Client) -> tuple[dict[str, Value], PartState]:
        """Artefacts outside training, at `exchange`, and the client's new state; an empty one keeps the old."""
        return {}, client.part_state

    def seal(self, outgoing: OutgoingUpdate) -> tuple[Message, PartState]:
        """What leaves in place of the message, and the client's new state; an empty one keeps the old."""
        return outgoing.message, outgoing.part_state

    # server
    def open(self, outgoing: OutgoingUpdate) -> Message:
        """The inverse of `seal`, before anything is added up; believes nothing that it can check."""
        return outgoing.message

    def stand_ins(self, server: Server, absent: list[int]) -> dict[int, StandIn]:
        """Rows that train in place of absent clients."""
        return {}

    def merge(self, server: Server, messages: Messages) -> Server:
        """What the messages change; the owner of the model comes last.

        This hook and the next two return a changed copy: a round with a message that is not finite may be played twice.
        """
        return server

    def step(self, server: Server) -> Server:
        """Server-side learning after the merge."""
        return server

    def collect(self, server: Server, shared: Messages) -> Server:
        """Store what an exchange brought."""
        return server

    def report(self, server: Server) -> dict[str, float]:
        """Numbers to log about the server's state after a round."""
        return {}
