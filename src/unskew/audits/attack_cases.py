"""From an observation to an attack problem: the rows to guess, and a model of the client's round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unskew.audits.problem import Problem
from unskew.audits.replayed_run import NoAttackError, ReplayedRun
from unskew.audits.threat_model import AttackerKnowledge, Observation, ThreatModel
from unskew.audits.unrolled_training import ClientSecrets, UnrolledClient, all_rows_at_once
from unskew.base.tree import State, Tree, stack, tree_map
from unskew.client.client_rows import ClientRows
from unskew.client.feed import BatchFeed, SingleClientFeed
from unskew.client.plan import Plan
from unskew.engines.engine import EngineContext
from unskew.protocol.part import Artefact
from unskew.wire.ledger import fingerprint
from unskew.wire.requests_and_replies import Received

ATTACKABLE = ("weights", "gradients", "control")  # kinds that can carry the update in some form


@dataclass(frozen=True)
class AttackCase:
    """One observation ready to be attacked, with the ground truth."""

    name: str  # round and client, or round and sum
    replay: UnrolledClient
    target: State
    secrets: list[ClientSecrets]
    share: list[float]
    sizes: list[int]
    x: Tensor  # the true rows [n, ...]
    y: Tensor
    images: list[int]  # indices of the rows in the training set
    note: str  # how the attacker models local training, for users
    assumptions: str  # the same in the fixed wording that `identity` contains

    @property
    def identity(self) -> str:
        """Part of the cache key: changes with the message, the artefact and the attacker's assumptions."""
        return f"{self.name} {self.replay.part}/{self.replay.artefact} {fingerprint(self.target)} {self.assumptions}"

    @property
    def batch_key(self) -> tuple:
        """Equal for cases that can be attacked in one batch."""
        shapes = tuple(tuple(t.shape) for client in self.secrets for t in torch.utils._pytree.tree_leaves(client))
        return (self.name.split("-")[0], tuple(self.sizes), shapes, self.replay.work)


def build_case(
    replayed: ReplayedRun,
    threat: ThreatModel,
    observation: Observation,
    part: str,
    artefact: str,
    dtype: torch.dtype,
    max_unrolled_steps: int,
) -> AttackCase:
    """The case of one observed artefact; raises NoAttackError with the reason if it cannot be attacked."""
    context, knows = replace(replayed.context, dtype=dtype), threat.knows
    if "model" not in observation.down or not knows.model:
        raise NoAttackError("the attacker does not have the model that the clients started from")
    received = _received(observation, context)
    method, work = context.at_round_on_device(observation.round)
    replay = UnrolledClient(method, context.model, work, received, part, artefact, context.task.classes)
    if not knows.batchnorm:
        replay = replace(replay, model=context.model.with_layers(lambda blocks: blocks.eval()))
    counts, clients = _row_counts(observation), observation.clients
    assumed = [_assumed_secrets(context, knows, observation.round, received, k, n) for k, n in zip(clients, counts)]
    secrets, sizes = [client for client, _ in assumed], [size for _, size in assumed]
    # `assumptions` is hashed into the cache key: another wording would discard the results of interrupted audits.
    steps, note, assumptions = len(secrets[0].steps), "modelled step by step", "unrolled"
    if not knows.steps or steps > max_unrolled_steps:
        assumptions = f"update / -lr, although the client took {steps} steps" if steps > 1 else "update / -lr"
        note = f"approximated by one gradient, {assumptions}"
        replay, secrets = replay.as_one_gradient(), [all_rows_at_once(client, n) for client, n in assumed]
    if _has_changed_state(replayed, observation):
        note += "; the client's state from earlier rounds is unknown and replaced by a new client's"
        assumptions += "; what the client kept from earlier rounds is taken to be what a new one has"
    summed = len(counts) > 1 and _declaration(replay).reduce == "sum"
    value = {name: t.to(context.device, dtype) for name, t in _observed_update(observation, part, artefact).items()}
    # `gradient_of` subtracts an untrained model's message once, but a sum contains it once per client: divide first.
    target = replay.gradient_of({name: t / len(counts) if summed else t for name, t in value.items()}, secrets[0])
    if not target or not all(bool(t.isfinite().all()) for t in target.values()):
        raise NoAttackError("the update cannot be computed from it")
    share = [n / sum(counts) if replayed.weigh_by_rows and not summed else 1 / len(counts) for n in counts]
    name = f"{observation.round:06d}-{clients[0] if len(clients) == 1 else 'sum'}"
    true = [replayed.true_rows(observation.round, k) for k in clients]
    x, y = torch.cat([x for x, _, _ in true]).to(dtype), torch.cat([y for _, y, _ in true])
    images = [row for _, _, rows in true for row in rows]
    if not assumptions.startswith("unrolled"):
        _check_one_gradient(replay, secrets[0], torch.zeros_like(x[: sizes[0]]), torch.zeros_like(y[: sizes[0]]))
    return AttackCase(name, replay, target, secrets, share, sizes, x, y, images, note, assumptions)


def _check_one_gradient(replay: UnrolledClient, secrets: ClientSecrets, x: Tensor, y: Tensor) -> None:
    """A method that pairs each batch with as many rows of others (FedMix) has no single step on all of its rows."""
    try:
        replay(secrets, x, y)
    except RuntimeError as error:
        raise NoAttackError(f"its local steps cannot be approximated by one gradient on all rows ({error})") from error


def _declaration(replay: UnrolledClient) -> Artefact:
    return next(p for p in replay.method.parts if p.name == replay.part).sends[replay.artefact]


def build_problem(cases: list[AttackCase], replayed: ReplayedRun, threat: ThreatModel) -> Problem:
    """One problem of several cases with the same `batch_key`."""
    first = cases[0]
    target = stack([c.target for c in cases])
    secrets = [stack([c.secrets[k] for c in cases]) for k in range(len(first.secrets))]
    labels = torch.stack([c.y for c in cases]) if threat.knows.labels else None
    task = replayed.context.task
    pixel_range = replayed.pixel_range(first.x)
    return Problem(
        first.replay, first.replay.model, target, secrets, first.share, first.sizes, tuple(first.x.shape[1:]),
        task.classes, labels, pixel_range,
    )  # fmt: skip


def _observed_update(observation: Observation, part: str, artefact: str) -> State:
    value = observation.up.get(part, {}).get(artefact)
    if not isinstance(value, dict):
        raise NoAttackError("unskew implements no attack on this kind")
    return value


def _received(observation: Observation, context: EngineContext) -> Received:
    parts = {name: sent for name, sent in observation.down.items() if name != "model"}
    return Received(_to_context(observation.down["model"]["weights"], context), _to_context(parts, context))


def _to_context(tree: Any, context: EngineContext) -> Any:
    """Moves all tensors to the attack's device and floats to its dtype."""
    return tree_map(lambda t: t.to(context.device, context.dtype if t.is_floating_point() else t.dtype), tree)


def _row_counts(observation: Observation) -> list[int]:
    """Rows of each client; an attacker that sees only their sum assumes equal shares."""
    total, clients = int(observation.up["model"]["samples"]), len(observation.clients)  # type: ignore[arg-type]
    return [total // clients + (i < total % clients) for i in range(clients)]


def _placeholder_rows(context: EngineContext, client: int, n: int) -> ClientRows:
    """As many rows as the client has, with unknown content; column `row` holds each row's index."""
    device, shape = context.device, context.client_rows.x.shape[1:]
    x = torch.zeros((), device=device).expand(n, *shape)
    y, row = torch.zeros(n, dtype=torch.int64, device=device), torch.arange(n, device=device)
    return ClientRows(
        x, y, {client: torch.arange(n)}, context.task.classes, lambda x: x, context.dtype, more={"row": row}
    )


def _new_client_state(context: EngineContext, client: int, n: int) -> Tree:
    return _to_context(context.newcomer_state(client, _placeholder_rows(context, client, n)), context)


def _has_changed_state(replayed: ReplayedRun, observation: Observation) -> bool:
    """Whether a client keeps state that it may have changed in an earlier round."""
    stateful = any(_new_client_state(replayed.context, k, 1) for k in observation.clients)
    trained_before = {k for r, clients in replayed.trained.items() if r < observation.round for k in clients}
    return stateful and bool(trained_before & set(observation.clients))


def _assumed_secrets(
    context: EngineContext, knows: AttackerKnowledge, round: int, received: Received, client: int, n: int
) -> tuple[ClientSecrets, int]:
    """The client's local steps under the attacker's assumptions, and the number of rows they use."""
    client_rows, state = _placeholder_rows(context, client, n), _new_client_state(context, client, n)
    plan = context.plan if knows.draws else _guessed_plan(context.plan)
    method, _ = context.at_round(round)
    for part in method.parts:
        streams = part.streams(received.parts.get(part.name, {}), state.get(part.name, {}))
        if any(stream.order == "join" for stream in streams.values()):
            raise NoAttackError(f"part {part.name} mixes further rows into the client's own")
    feed = SingleClientFeed(BatchFeed(replace(context, plan=plan), client_rows, round, received, [client], [state]))
    steps = [feed.at(step) for step in range(feed.steps)]
    used = torch.unique(torch.cat([step.batch["row"] for step in steps]))
    batches = [step.batch | {"row": torch.searchsorted(used, step.batch["row"])} for step in steps]
    without_rows = [
        step._replace(batch={k: v for k, v in batch.items() if k not in ("x", "y")})
        for step, batch in zip(steps, batches)
    ]
    row_count = torch.tensor(float(n), dtype=context.dtype, device=context.device)
    secrets = ClientSecrets(row_count, without_rows, state)
    if not knows.batch:
        full_batch = all_rows_at_once(secrets, len(used)).steps[0].batch
        secrets = secrets._replace(steps=[step._replace(batch=full_batch) for step in secrets.steps])
    return secrets, len(used)


def _guessed_plan(plan: Plan) -> Plan:
    """The attacker's own random draws. In the first pass any row order fits, since guessed rows are interchangeable."""
    return replace(plan, seed=plan.seed + 2**32)
