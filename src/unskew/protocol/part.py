"""The part protocol: a method is a list of parts, and a part is a frozen dataclass with optional hooks.

Fields are hyper-parameters: typed, documented, validated. During a step every float field is a 0-dim tensor. Hooks are
pure functions: a part returns the state it needs later, and the runner stores it. A round calls the hooks in the order
given in `server/federation.py`.
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

OLD_HOOKS = {"known": "label_stats", "now": "at_round"}  # the hooks' old names, for one version
Kind = Literal[
    "weights", "gradients", "features", "labels", "counts", "statistics", "synthetic", "digest", "raw", "control"
]


@dataclass(frozen=True)
class Artefact:
    """A declared piece of a message: its kind, and how the server may reduce it over clients."""

    kind: Kind
    # mean, sum: aggregated over clients; rows: all clients' rows, concatenated; each: one value per client.
    # A broadcast with reduce="rows" reaches `streams`, but no loss.
    reduce: Literal["mean", "sum", "rows", "each"] = "each"
    lasting: bool = False  # clients keep a copy: sent again only when it has changed
    update: bool = False  # for kind "weights": the difference to the received model instead of a whole model


def check_declared(part: str, declared: dict[str, Artefact], sent: dict[str, Value], hook: str) -> None:
    """Refuse artefacts that the part does not declare, by name."""
    for name in sent:
        if name not in declared:
            raise UserError(
                f"part {part}: {hook}() returned {name!r}, which the part does not declare; expected "
                f"{', '.join(declared) or 'nothing'}; declare it as an Artefact with its kind"
            )


@dataclass(frozen=True)
class Exchange:
    """When a part's `share` runs, on which clients, and whether they need the current model for it."""

    when: Literal["before training", "before round", "after training", "after merge", "at the end"]
    who: Literal["participants", "newcomers", "all"] = "participants"
    every: int = 1  # 3: in rounds 3, 6, 9, ...
    model: bool = True  # send the current model to the clients that share

    def __post_init__(self) -> None:
        if self.every != 1 and self.when in ("before training", "at the end"):
            raise ValueError(f"an exchange {self.when} happens only once; remove every={self.every}")
        if self.who == "newcomers" and self.when == "at the end":
            raise ValueError(
                "an exchange at the end has no newcomers, because everyone who took part was seen before; expected "
                "who='participants' or who='all'"
            )
        if self.when == "after training" and (self.who != "participants" or self.every != 1):
            raise ValueError("an exchange after training runs in every client's round; remove who and every")


@dataclass(frozen=True)
class Stream:
    """Extra training rows, one batch of them per step: `x` [n, ...] as model input, `y` [n] or [n, classes]."""

    x: Tensor
    y: Tensor
    # cycle: shuffled passes without end; uniform: independent draws; join: shuffled into the client's own epoch
    order: Literal["cycle", "uniform", "join"] = "cycle"


@dataclass(frozen=True)
class Sizes:
    """Sizes that a part may use to shape its random draws."""

    rows: int  # of the client
    steps: int  # of its round; 0 outside training
    batch: int
    classes: int
    streams: dict[str, int]  # rows of each stream, by "part/stream"


class Part:
    """Base class of all parts: subclass it, declare fields, register with `@part(name)`. Every hook is optional."""

    name: ClassVar[str] = ""  # set by `@part(name)`
    owner: ClassVar[bool] = False  # merges the model; exactly one part per method
    objective: ClassVar[bool] = False  # defines the main loss; exactly one part per method
    edits_model: ClassVar[bool] = False  # may change the model in `step` or `collect` without owning it
    sends: ClassVar[dict[str, Artefact]] = {}  # returned by `up`
    broadcasts: ClassVar[dict[str, Artefact]] = {}  # returned by `down`
    shares: ClassVar[dict[str, Artefact]] = {}  # returned by `share`
    neutral: ClassVar[dict[str, Any]] = {}  # field values at which the part changes nothing, bit for bit
    exchange: ClassVar[Exchange | None] = None  # when `share` runs
    travels_as: ClassVar[str] = ""  # how `seal` encodes the update, in words and bytes

    def __init_subclass__(cls) -> None:
        """Make a hook callable by its old name too, whichever of the two a class defines."""
        for names in (pair for old, new in OLD_HOOKS.items() for pair in ((old, new), (new, old))):
            if names[0] in vars(cls) and names[1] not in vars(cls):
                setattr(cls, names[1], vars(cls)[names[0]])

    # set-up
    def build(self, method: Method, work: Work) -> Self:
        """Check the method's other parts and the work, before any data are read; return the part to use."""
        return self

    def client_init(self, model: Model, client: Newcomer) -> PartState:
        """State of a client at its first use, whenever that is: it must depend on the arguments only."""
        return {}

    def server_init(self, model: Model, task: Task) -> PartState:
        """State of the server before round 1: tensors by name, or groups of them, as in {"u": {...}}."""
        return {}

    def at_round(self, round: int, work: Work) -> tuple[Part, Work]:
        """The part and the work used in this round. It may be a different part if neither of them keeps state."""
        return self, work

    # training
    def streams(self, received: dict[str, Any], part_state: PartState) -> dict[str, Stream]:
        """Extra training rows for this round. A stream without rows is left out."""
        return {}

    def draws(
        self, when: Literal["init", "steps", "share", "seal"], sizes: Sizes, generator: np.random.Generator
    ) -> dict[str, Any]:
        """Random arrays or tensors; for "steps" the leading axis is the step. A client's "init" draws stay the same for
        the whole run: `client_init` and every `share` receive them."""
        return {}

    def label_stats(self, counts: Tensor) -> State:
        """Tensors that depend on the client's label counts only, computed once per round instead of in every step; the
        loss reads them as `view.label_stats(self)`."""
        return {}

    def batch(self, batch: Batch, received: dict[str, Any], train: bool) -> Batch:
        """Change the batch before the loss (no gradient) and, with train=False, before evaluation."""
        return batch

    def loss(self, view: View) -> Tensor | tuple[Tensor, State] | None:
        """One term of the step's loss, a scalar; training minimises the sum over all parts. Scalars in a second return
        value are logged, as means over the steps."""
        return None

    # messages
    def down(self, server: Server) -> dict[str, Value]:
        """Artefacts to broadcast, the same for every client."""
        return {}

    def up(self, end: End) -> tuple[dict[str, Value], PartState]:
        """Artefacts to send after training, and the client's new state; an empty state keeps the old one.

        Names, dtypes and shapes may depend on the round, on the received tensors' shapes and on the client's number of
        rows, but not on the client's state or on any values: every reply must match a dry run on tensors of zeros
        (client/dry_run.py). Artefacts that describe the same rows, such as features and labels, must have equally many.
        """
        return {}, end.part_state

    def share(self, client: Client) -> tuple[dict[str, Value], PartState]:
        """Artefacts to send when `exchange` says so, and the client's new state; an empty state keeps the old one."""
        return {}, client.part_state

    def seal(self, outgoing: OutgoingUpdate) -> tuple[Message, PartState]:
        """The encoded (quantised, sparsified) message, and the client's new state; an empty state keeps the old one."""
        return outgoing.message, outgoing.part_state

    # server
    def open(self, outgoing: OutgoingUpdate) -> Message:
        """Decode a sealed message before aggregation. Check everything that a broken or hostile client could send."""
        return outgoing.message

    def stand_ins(self, server: Server, absent: list[int]) -> dict[int, StandIn]:
        """Rows that train in place of absent clients."""
        return {}

    def merge(self, server: Server, messages: Messages) -> Server:
        """The server after aggregating the messages. The owner of the model merges last.

        `merge`, `step` and `collect` must return a changed copy: a round with a non-finite message may run twice.
        """
        return server

    def step(self, server: Server) -> Server:
        """Server-side learning after the merge."""
        return server

    def collect(self, server: Server, shared: Messages) -> Server:
        """The server after an exchange: store what the clients shared."""
        return server

    def report(self, server: Server) -> dict[str, float]:
        """Scalars about the server's state to log after a round."""
        return {}

    known, now = label_stats, at_round  # the old names, for one version
