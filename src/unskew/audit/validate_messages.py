"""Recorded messages against the run they are said to come from: who, how many rows, names and shapes of tensors."""

from __future__ import annotations

from torch import Tensor

from unskew.audit.replayed_run import ReplayedRun
from unskew.base.errors import UserError
from unskew.base.tree import Value
from unskew.results.recorded_messages import RecordedRound
from unskew.wire.ledger import LedgerEntry

SAMPLES = ("model", "samples")


def check(recorded: RecordedRound, world: ReplayedRun) -> None:
    """Refuse what does not belong to the run, by client and artefact, before anything is computed with it."""
    context = world.context
    clients = range(context.task.clients)
    if strange := [sent.entry.client for sent in recorded.sent if sent.entry.client not in clients]:
        raise _unlike(world, recorded.round, f"clients 0 to {len(clients) - 1}", f"client {strange[0]}")
    for entry, _, value in recorded.sent:
        if entry.phase == "train" and (entry.part, entry.artefact) == SAMPLES:
            _rows(world, entry, value)
        elif entry.phase == "train" and entry.kind == "weights" and entry.direction == "down":
            _shapes(world, entry, value)
    told = {e.client for e, _, _ in recorded.sent if (e.part, e.artefact) == SAMPLES and e.direction == "up"}
    given = {e.client for e, _, _ in recorded.sent if (e.part, e.artefact, e.direction) == ("model", "weights", "down")}
    for k in recorded.senders:
        if k not in told or k not in given:
            wanted = "number of rows" if k not in told else "model"
            raise _unlike(world, recorded.round, f"the {wanted} of client {k}", "none")


def check_updates(recorded: RecordedRound, world: ReplayedRun) -> None:
    """Of messages that were opened: tensors of the model have its shapes."""
    for entry, _, value in recorded.sent:
        if entry.phase == "train" and entry.direction == "up" and isinstance(value, dict):
            _shapes(world, entry, value)


def _rows(world: ReplayedRun, entry: LedgerEntry, value: Value) -> None:
    held = len(world.context.client_rows.index[entry.client])
    if not isinstance(value, Tensor) or value.numel() != 1 or int(value) != held:
        found = int(value) if isinstance(value, Tensor) and value.numel() == 1 else "no number"
        raise _unlike(world, entry.round, f"{held} rows of client {entry.client}", str(found))


def _shapes(world: ReplayedRun, entry: LedgerEntry, value: Value) -> None:
    model = world.context.model.initial
    for name, tensor in value.items() if isinstance(value, dict) else ():
        if name in model and tensor.shape != model[name].shape:
            where = f"{entry.part}/{entry.artefact} of client {entry.client}: {name} of shape"
            raise _unlike(world, entry.round, f"{where} {list(model[name].shape)}", str(list(tensor.shape)))
    if (entry.part, entry.artefact, entry.direction) == ("model", "weights", "down"):
        names = value.keys() if isinstance(value, dict) else set()
        if missing := sorted(set(world.context.model.shared) - names):
            raise _unlike(world, entry.round, f"the tensor {missing[0]} of the model", "none of that name")


def _unlike(world: ReplayedRun, round: int, wanted: str, found: str) -> UserError:
    return UserError(
        f"{world.run.folder}/messages, round {round}: expected {wanted}, found {found}; play the run again"
    )
