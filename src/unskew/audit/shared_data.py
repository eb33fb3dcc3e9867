"""What clients shared outside training, row by row (features, means, raw rows), and how an attacker makes more of it.

The part's own `share` makes the attacker's items from rows of his own, so that nothing about the method is written
twice. A part that shares rows says which in its draw `pick`: positions [items], or [items, M] where M rows make one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.audit.replayed_run import NoAttackError, ReplayedRun
from unskew.audit.threat_model import ThreatModel
from unskew.base.tree import Rows, State
from unskew.client.share import share_draws
from unskew.protocol.client_view import Client, ClientFacts
from unskew.results.recorded_messages import RecordedRound
from unskew.wire.ledger import LedgerMessage

AT_ONCE = 256  # items that are made together
SAME = 0.05  # relative difference of an item made again on another device in another precision


@dataclass(frozen=True, eq=False)
class SharedArtefact:
    """One artefact of one round: items [n, ...] in the order of the clients, and the training rows [n, M] behind."""

    world: ReplayedRun
    part: str
    artefact: str
    round: int
    model: State  # that the clients had; empty if the exchange does without
    items: Tensor
    rows: Tensor
    flat: bool  # a pick is [items]

    def made(self, x: Tensor, pick: Tensor) -> Tensor:
        """Items [n, ...] of stored rows x [N, ...], item i of the rows pick[i] of pick [n, M]."""
        return torch.cat([self._made(x, some) for some in torch.split(pick, AT_ONCE)])

    def _made(self, x: Tensor, pick: Tensor) -> Tensor:
        context = self.world.context
        used, place = torch.unique(pick, return_inverse=True)
        x = x[used.to(x.device)].to(context.device)
        classes = torch.zeros(context.task.classes, device=context.device, dtype=context.dtype)
        facts = ClientFacts(classes.new_tensor(float(len(x))), classes)
        index, y = (torch.arange(len(x), device=context.device), torch.zeros(len(x), device=context.device).long())
        draws = {"pick": (place[:, 0] if self.flat else place).to(context.device)}
        client = Client(context.model, self.model, {}, draws, facts, x, y, index, context.client_rows.prepare)
        method, _ = context.at_round_on_device(self.round)
        owner = next(part for part in method.parts if part.name == self.part)
        with torch.no_grad():
            sent, _ = owner.share(client)
        value = sent[self.artefact]
        if not isinstance(value, Rows):
            raise NoAttackError("no attack known here")
        return value.x[value.keep].to(context.dtype)

    def some(self, images: int) -> SharedArtefact:
        """The first items, until there are as many rows behind them; at least one item."""
        count = max(images // self.rows.shape[1], 1)
        return SharedArtefact(
            self.world, self.part, self.artefact, self.round, self.model, self.items[:count], self.rows[:count],
            self.flat,
        )  # fmt: skip

    def others(self, seed: int) -> Tensor:
        """Numbers of training rows that no client of these items holds, shuffled: the attacker's own."""
        index, mine = self.world.context.client_rows.index, set(self.rows.flatten().tolist())
        clients = [k for k in range(self.world.context.task.clients) if not mine.isdisjoint(index[k].tolist())]
        left = torch.ones(len(self.world.context.client_rows.x), dtype=torch.bool)
        for k in clients:
            left[index[k]] = False
        rows = left.nonzero().flatten()
        if len(rows) < 2:
            raise NoAttackError("the attacked clients hold all rows, so that the attacker has none to learn from")
        return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]


def shared(
    world: ReplayedRun, threat: ThreatModel, recorded: list[RecordedRound], part: str, artefact: str, images: int
) -> Iterator[SharedArtefact]:
    """What was recorded of an artefact, by round, as far as the attacker sees it; or NoAttackError."""
    owner = next(p for p in world.context.method.parts if p.name == part)
    if threat.up != "each" and artefact not in owner.broadcasts:
        raise NoAttackError("not in what this attacker sees, so not attacked")
    found, unseen = 0, 0
    for one in recorded:
        if threat.up != "each" and not _sent_on(world, one.round, part, artefact):
            unseen += 1
            continue
        sent = [s for s in one.sent if (s.entry.direction, s.entry.part, s.entry.artefact) == ("up", part, artefact)]
        items = _items(world, one, sent, part, artefact, images)
        if items is not None:
            found += 1
            yield items
    if unseen and not found:
        raise NoAttackError("was not sent on to anybody after the recorded rounds, so not attacked")
    if not found:
        raise NoAttackError("in no recorded round, so not attacked")


def _sent_on(world: ReplayedRun, round: int, part: str, artefact: str) -> bool:
    """Whether what came up in a round went down again: before the next came up, unless the part keeps all there was."""
    ledger = world.run.ledger.reset_index(drop=True)
    mine = ledger[(ledger["part"] == part) & (ledger["artefact"] == artefact)]
    up, down = mine[mine["direction"] == "up"], mine[mine["direction"] == "down"]
    came = up[up["round"] == round].index
    later = up[up["round"] > round].index
    until = later.min() if len(later) and (mine["kind"] == "features").all() else len(ledger)
    return bool(len(came)) and bool(((down.index > came.min()) & (down.index < until)).any())


def _items(
    world: ReplayedRun, recorded: RecordedRound, sent: list[LedgerMessage], part: str, artefact: str, images: int
) -> SharedArtefact | None:
    context, values, behind, flat = world.context, [], [], True
    for entry, _, value in sent:
        client = entry.client
        pick = share_draws(context, part, recorded.round, client).get("pick")
        if pick is None:
            raise NoAttackError("no attack known here")
        flat = pick.ndim == 1
        pick = pick.reshape(len(pick), -1).cpu()
        pick = pick[(pick >= 0).all(1)]
        if not isinstance(value, Tensor) or len(value) != len(pick):
            raise NoAttackError("the rows behind it cannot be told")
        if len(value):
            values.append(value.to(context.device, context.dtype))
            behind.append(context.client_rows.index[client][pick])
    if not values:
        return None
    state = recorded.of(sent[0].entry.client, "down", sent[0].entry.phase).get("model", {}).get("weights", {})
    state = {name: t.to(context.device) for name, t in state.items()}  # type: ignore[union-attr]
    whole = SharedArtefact(world, part, artefact, recorded.round, state, torch.cat(values), torch.cat(behind), flat)
    some = whole.some(images)
    again = some.made(context.client_rows.x, some.rows)
    if float((again - some.items).norm()) > SAME * float(some.items.norm()):
        raise NoAttackError("the rows behind it cannot be told")
    return some
