"""Data that clients share row by row outside training (features, means, raw rows), and how the attacker makes more.

The attacker applies the part's own `share` hook to its own rows, so the audit has no second copy of the method. A part
that shares rows names them in its draw `pick`: positions [items], or [items, M] where M rows make one item.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.audits.replayed_run import NoAttackError, NoImplementedAttackError, ReplayedRun
from unskew.audits.threat_model import ThreatModel
from unskew.base.tree import Rows, State
from unskew.client.share import share_draws
from unskew.protocol.client_view import Client, ClientFacts
from unskew.results.recorded_messages import RecordedRound
from unskew.wire.ledger import LedgerMessage

CHUNK = 256  # items computed per call of `share`
RELATIVE_TOLERANCE = 0.05  # allowed difference of items that are recomputed on another device in another precision


@dataclass(frozen=True, eq=False)
class SharedArtefact:
    """One artefact of one round: items [n, ...] in client order, and the indices [n, M] of their training rows."""

    replayed: ReplayedRun
    part: str
    artefact: str
    round: int
    model: State  # what the clients received; empty if the exchange needs no model
    items: Tensor
    rows: Tensor
    flat: bool  # `pick` has shape [items] instead of [items, M]

    def make_items(self, x: Tensor, pick: Tensor) -> Tensor:
        """Items [n, ...] from stored rows x [N, ...]; item i is made of the rows pick[i], for pick [n, M]."""
        return torch.cat([self._make_chunk(x, chunk) for chunk in torch.split(pick, CHUNK)])

    def _make_chunk(self, x: Tensor, pick: Tensor) -> Tensor:
        context = self.replayed.context
        used, position = torch.unique(pick, return_inverse=True)
        x = x[used.to(x.device)].to(context.device)
        classes = torch.zeros(context.task.classes, device=context.device, dtype=context.dtype)
        facts = ClientFacts(classes.new_tensor(float(len(x))), classes)
        index, y = (torch.arange(len(x), device=context.device), torch.zeros(len(x), device=context.device).long())
        draws = {"pick": (position[:, 0] if self.flat else position).to(context.device)}
        client = Client(context.model, self.model, {}, draws, facts, x, y, index, context.client_rows.prepare)
        method, _ = context.at_round_on_device(self.round)
        owner = next(part for part in method.parts if part.name == self.part)
        with torch.no_grad():
            sent, _ = owner.share(client)
        value = sent[self.artefact]
        if not isinstance(value, Rows):
            raise NoImplementedAttackError
        return value.x[value.keep].to(context.dtype)

    def first_items(self, images: int) -> SharedArtefact:
        """The first items, made of at most so many rows; at least one item."""
        count = max(images // self.rows.shape[1], 1)
        return SharedArtefact(
            self.replayed, self.part, self.artefact, self.round, self.model, self.items[:count], self.rows[:count],
            self.flat,
        )  # fmt: skip

    def attacker_rows(self, seed: int) -> Tensor:
        """Shuffled indices of the training rows that none of the attacked clients holds: the attacker's own data."""
        index, attacked = self.replayed.context.client_rows.index, set(self.rows.flatten().tolist())
        clients = [k for k in range(self.replayed.context.task.clients) if not attacked.isdisjoint(index[k].tolist())]
        free = torch.ones(len(self.replayed.context.client_rows.x), dtype=torch.bool)
        for k in clients:
            free[index[k]] = False
        rows = free.nonzero().flatten()
        if len(rows) < 2:
            raise NoAttackError("the attacked clients hold all training rows, so the attacker has none to train on")
        return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]


def shared_artefacts(
    replayed: ReplayedRun, threat: ThreatModel, recorded: list[RecordedRound], part: str, artefact: str, images: int
) -> Iterator[SharedArtefact]:
    """The recorded rounds of an artefact that the attacker sees; NoAttackError if there are none."""
    owner = next(p for p in replayed.context.method.parts if p.name == part)
    if threat.up != "each" and artefact not in owner.broadcasts:
        raise NoAttackError("not visible to this attacker")
    visible, invisible = 0, 0
    for messages in recorded:
        if threat.up != "each" and not _was_broadcast(replayed, messages.round, part, artefact):
            invisible += 1
            continue
        sent = [
            s for s in messages.sent if (s.entry.direction, s.entry.part, s.entry.artefact) == ("up", part, artefact)
        ]
        items = _observed_items(replayed, messages, sent, part, artefact, images)
        if items is not None:
            visible += 1
            yield items
    if invisible and not visible:
        raise NoAttackError("not passed on to any client after the recorded rounds")
    if not visible:
        raise NoAttackError("not sent in any recorded round")


def _was_broadcast(replayed: ReplayedRun, round: int, part: str, artefact: str) -> bool:
    """Whether the server sent this round's uploads on to clients.

    Later uploads replace features; of every other kind the server keeps all that it ever received.
    """
    ledger = replayed.run.ledger.reset_index(drop=True)
    entries = ledger[(ledger["part"] == part) & (ledger["artefact"] == artefact)]
    up, down = entries[entries["direction"] == "up"], entries[entries["direction"] == "down"]
    uploads = up[up["round"] == round].index
    later = up[up["round"] > round].index
    until = later.min() if len(later) and (entries["kind"] == "features").all() else len(ledger)
    return bool(len(uploads)) and bool(((down.index > uploads.min()) & (down.index < until)).any())


def _observed_items(
    replayed: ReplayedRun, recorded: RecordedRound, sent: list[LedgerMessage], part: str, artefact: str, images: int
) -> SharedArtefact | None:
    """The recorded items with the training rows they were made of, which are checked by making the items again."""
    context, values, rows, flat = replayed.context, [], [], True
    for entry, _, value in sent:
        client = entry.client
        pick = share_draws(context, part, recorded.round, client).get("pick")
        if pick is None:
            raise NoImplementedAttackError
        flat = pick.ndim == 1
        pick = pick.reshape(len(pick), -1).cpu()
        pick = pick[(pick >= 0).all(1)]
        if not isinstance(value, Tensor) or len(value) != len(pick):
            raise NoAttackError("the training rows behind it cannot be determined")
        if len(value):
            values.append(value.to(context.device, context.dtype))
            rows.append(context.client_rows.index[client][pick])
    if not values:
        return None
    state = recorded.of(sent[0].entry.client, "down", sent[0].entry.phase).get("model", {}).get("weights", {})
    state = {name: t.to(context.device) for name, t in state.items()}  # type: ignore[union-attr]
    observed = SharedArtefact(replayed, part, artefact, recorded.round, state, torch.cat(values), torch.cat(rows), flat)
    observed = observed.first_items(images)
    recomputed = observed.make_items(context.client_rows.x, observed.rows)
    if float((recomputed - observed.items).norm()) > RELATIVE_TOLERANCE * float(observed.items.norm()):
        raise NoAttackError("the training rows behind it cannot be determined")
    return observed
