"""Checks that recorded messages fit their run: clients, numbers of rows, names and shapes of tensors."""

from __future__ import annotations

from torch import Tensor

from unskew.audits.replayed_run import ReplayedRun
from unskew.base.errors import UserError
from unskew.base.tree import Value
from unskew.results.recorded_messages import RecordedRound
from unskew.wire.ledger import LedgerEntry

SAMPLES = ("model", "samples")


def check_messages(recorded: RecordedRound, replayed: ReplayedRun) -> None:
    """Raise a UserError that names client and artefact if a message does not fit the run; call before using any."""
    context = replayed.context
    clients = range(context.task.clients)
    if unknown := [sent.entry.client for sent in recorded.sent if sent.entry.client not in clients]:
        raise _mismatch(replayed, recorded.round, f"clients 0 to {len(clients) - 1}", f"client {unknown[0]}")
    for entry, _, value in recorded.sent:
        if entry.phase == "train" and (entry.part, entry.artefact) == SAMPLES:
            _check_row_count(replayed, entry, value)
        elif entry.phase == "train" and entry.kind == "weights" and entry.direction == "down":
            _check_shapes(replayed, entry, value)
    sent_counts = {e.client for e, _, _ in recorded.sent if (e.part, e.artefact) == SAMPLES and e.direction == "up"}
    sent_model = {
        e.client for e, _, _ in recorded.sent if (e.part, e.artefact, e.direction) == ("model", "weights", "down")
    }
    for k in recorded.senders:
        if k not in sent_counts or k not in sent_model:
            wanted = "number of rows" if k not in sent_counts else "model"
            raise _mismatch(replayed, recorded.round, f"the {wanted} of client {k}", "none")


def check_updates(recorded: RecordedRound, replayed: ReplayedRun) -> None:
    """Raise a UserError if a tensor of a decoded update does not have the shape of its model tensor."""
    for entry, _, value in recorded.sent:
        if entry.phase == "train" and entry.direction == "up" and isinstance(value, dict):
            _check_shapes(replayed, entry, value)


def _check_row_count(replayed: ReplayedRun, entry: LedgerEntry, value: Value) -> None:
    expected = len(replayed.context.client_rows.index[entry.client])
    if not isinstance(value, Tensor) or value.numel() != 1 or int(value) != expected:
        actual = int(value) if isinstance(value, Tensor) and value.numel() == 1 else "no number"
        raise _mismatch(replayed, entry.round, f"{expected} rows of client {entry.client}", str(actual))


def _check_shapes(replayed: ReplayedRun, entry: LedgerEntry, value: Value) -> None:
    model = replayed.context.model.initial
    for name, tensor in value.items() if isinstance(value, dict) else ():
        if name in model and tensor.shape != model[name].shape:
            where = f"{entry.part}/{entry.artefact} of client {entry.client}: {name} of shape"
            raise _mismatch(replayed, entry.round, f"{where} {list(model[name].shape)}", str(list(tensor.shape)))
    if (entry.part, entry.artefact, entry.direction) == ("model", "weights", "down"):
        names = value.keys() if isinstance(value, dict) else set()
        if missing := sorted(set(replayed.context.model.shared) - names):
            raise _mismatch(replayed, entry.round, f"the tensor {missing[0]} of the model", "none of that name")


def _mismatch(replayed: ReplayedRun, round: int, expected: str, actual: str) -> UserError:
    return UserError(
        f"{replayed.run.folder}/messages, round {round}: expected {expected}, found {actual}; repeat the run"
    )
