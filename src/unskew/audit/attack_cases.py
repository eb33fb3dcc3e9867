"""From what an attacker sees to a problem: the rows he must guess, and the client's round as he thinks it went."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unskew.audit.problem import Problem
from unskew.audit.replayed_run import NoAttackError, ReplayedRun
from unskew.audit.threat_model import AttackerKnowledge, Observation, ThreatModel
from unskew.audit.unrolled_training import ClientSecrets, UnrolledClient, all_rows_at_once
from unskew.base.tree import State, Tree, stack, tree_map
from unskew.client.client_rows import ClientRows
from unskew.client.feed import BatchFeed, SingleClientFeed
from unskew.client.plan import Plan
from unskew.engines.engine import EngineContext
from unskew.protocol.part import Artefact
from unskew.wire.ledger import fingerprint
from unskew.wire.message import Received

ATTACKABLE = ("weights", "gradients", "control")  # kinds that may be the update in another dress


@dataclass(frozen=True)
class AttackCase:
    """One observation ready to be attacked, and the truth."""

    name: str  # round and client, or round and sum
    replay: UnrolledClient
    target: State
    hidden: list[ClientSecrets]
    share: list[float]
    sizes: list[int]
    x: Tensor  # the truth [n, ...]
    y: Tensor
    images: list[int]  # numbers of the rows
    note: str  # how the attacker models the client

    @property
    def identity(self) -> str:
        """Changes with the message, and with what is taken from it."""
        return f"{self.name} {self.replay.part}/{self.replay.artefact} {fingerprint(self.target)} {self.note}"

    @property
    def alike(self) -> tuple:
        """Cases with the same of this can be attacked together."""
        shapes = tuple(tuple(t.shape) for h in self.hidden for t in torch.utils._pytree.tree_leaves(h))
        return (self.name.split("-")[0], tuple(self.sizes), shapes, self.replay.work)


def case(
    world: ReplayedRun,
    threat: ThreatModel,
    seen: Observation,
    part: str,
    artefact: str,
    dtype: torch.dtype,
    longest: int,
) -> AttackCase:
    """The observation of one artefact; NoAttackError says why there is none."""
    context, knows = replace(world.context, dtype=dtype), threat.knows
    if "model" not in seen.down or not knows.model:
        raise NoAttackError("the attacker does not have the model that the clients began with")
    received = _received(seen, context)
    method, work = context.at_round_on_device(seen.round)
    replay = UnrolledClient(method, context.model, work, received, part, artefact, context.task.classes)
    if not knows.batchnorm:
        replay = replace(replay, model=context.model.rewritten(lambda blocks: blocks.eval()))
    counts = _row_counts(seen)
    made = [_hidden(context, knows, seen.round, received, k, n) for k, n in zip(seen.clients, counts)]
    hidden, sizes = [h for h, _ in made], [size for _, size in made]
    steps, note = len(hidden[0].moments), "unrolled"
    if not knows.steps or steps > longest:
        note = f"update / -lr, although the client took {steps} steps" if steps > 1 else "update / -lr"
        replay, hidden = replay.as_one_gradient(), [all_rows_at_once(h, n) for h, n in made]
    if _remembers(world, seen):
        note += "; what the client kept from earlier rounds is taken to be what a new one has"
    summed = len(counts) > 1 and _declared(replay).reduce == "sum"
    value = {name: t.to(context.device, dtype) for name, t in _state(seen, part, artefact).items()}
    # A sum holds as many times what one client that has not moved would say.
    target = replay.observed({name: t / len(counts) if summed else t for name, t in value.items()}, hidden[0])
    if not target or not all(bool(t.isfinite().all()) for t in target.values()):
        raise NoAttackError("the update cannot be read off it")
    share = [n / sum(counts) if world.by_rows and not summed else 1 / len(counts) for n in counts]
    name = f"{seen.round:06d}-{seen.clients[0] if len(seen.clients) == 1 else 'sum'}"
    true = [world.true_rows(seen.round, k) for k in seen.clients]
    x, y = torch.cat([x for x, _, _ in true]).to(dtype), torch.cat([y for _, y, _ in true])
    images = [row for _, _, numbers in true for row in numbers]
    return AttackCase(name, replay, target, hidden, share, sizes, x, y, images, note)


def _declared(replay: UnrolledClient) -> Artefact:
    return next(p for p in replay.method.parts if p.name == replay.part).sends[replay.artefact]


def problem(cases: list[AttackCase], world: ReplayedRun, threat: ThreatModel) -> Problem:
    """Cases that are alike as one problem."""
    first = cases[0]
    target = stack([c.target for c in cases])
    hidden = [stack([c.hidden[k] for c in cases]) for k in range(len(first.hidden))]
    labels = torch.stack([c.y for c in cases]) if threat.knows.labels else None
    task = world.context.task
    box = world.box(first.x)
    return Problem(
        first.replay, first.replay.model, target, hidden, first.share, first.sizes, tuple(first.x.shape[1:]),
        task.classes, labels, box,
    )  # fmt: skip


def _state(seen: Observation, part: str, artefact: str) -> State:
    value = seen.up.get(part, {}).get(artefact)
    if not isinstance(value, dict):
        raise NoAttackError("no attack known here")
    return value


def _received(seen: Observation, context: EngineContext) -> Received:
    parts = {name: sent for name, sent in seen.down.items() if name != "model"}
    return Received(_cast(seen.down["model"]["weights"], context), _cast(parts, context))


def _cast(tree: Any, context: EngineContext) -> Any:
    """Tensors where the attack computes, floats in its type."""
    return tree_map(lambda t: t.to(context.device, context.dtype if t.is_floating_point() else t.dtype), tree)


def _row_counts(seen: Observation) -> list[int]:
    """Rows of each client; who sees only their sum takes them for equal."""
    total, clients = int(seen.up["model"]["samples"]), len(seen.clients)  # type: ignore[arg-type]
    return [total // clients + (i < total % clients) for i in range(clients)]


def _blank(context: EngineContext, client: int, n: int) -> ClientRows:
    """As many rows as the client has, of which nothing is known; the column `row` says which is where."""
    device, shape = context.device, context.client_rows.x.shape[1:]
    x = torch.zeros((), device=device).expand(n, *shape)
    y, row = torch.zeros(n, dtype=torch.int64, device=device), torch.arange(n, device=device)
    return ClientRows(
        x, y, {client: torch.arange(n)}, context.task.classes, lambda x: x, context.dtype, more={"row": row}
    )


def _fresh(context: EngineContext, client: int, n: int) -> Tree:
    return _cast(context.newcomer(client, _blank(context, client, n)), context)


def _remembers(world: ReplayedRun, seen: Observation) -> bool:
    """Whether what a client keeps is not what it began with."""
    kept = any(_fresh(world.context, k, 1) for k in seen.clients)
    before = {k for r, clients in world.trained.items() if r < seen.round for k in clients}
    return kept and bool(before & set(seen.clients))


def _hidden(
    context: EngineContext, knows: AttackerKnowledge, round: int, received: Received, client: int, n: int
) -> tuple[ClientSecrets, int]:
    """The client's steps as the attacker thinks they went, and how many rows they use."""
    client_rows, mine = _blank(context, client, n), _fresh(context, client, n)
    plan = context.plan if knows.draws else _other(context.plan)
    method, _ = context.at_round(round)
    for part in method.parts:
        streams = part.streams(received.parts.get(part.name, {}), mine.get(part.name, {}))
        if any(stream.order == "join" for stream in streams.values()):
            raise NoAttackError(f"part {part.name} puts further rows among the client's own")
    feed = SingleClientFeed(BatchFeed(replace(context, plan=plan), client_rows, round, received, [client], [mine]))
    moments = [feed.at(step) for step in range(feed.steps)]
    used = torch.unique(torch.cat([m.batch["row"] for m in moments]))
    places = [m.batch | {"row": torch.searchsorted(used, m.batch["row"])} for m in moments]
    trimmed = [m._replace(batch={k: v for k, v in b.items() if k not in ("x", "y")}) for m, b in zip(moments, places)]
    hidden = ClientSecrets(torch.tensor(float(n), dtype=context.dtype, device=context.device), trimmed, mine)
    if not knows.batch:
        whole = all_rows_at_once(hidden, len(used)).moments[0].batch
        hidden = hidden._replace(moments=[m._replace(batch=whole) for m in hidden.moments])
    return hidden, len(used)


def _other(plan: Plan) -> Plan:
    """Draws of the attacker's own; guessed rows can change places, so that the first pass fits in any order."""
    return replace(plan, seed=plan.seed + 2**32)
