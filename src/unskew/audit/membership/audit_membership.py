"""Membership inference in an audit: on the model that the run left, and on the updates that were recorded.

Of the model, members are rows of its clients; of an update, the rows that its sender trained on (or the senders of a
sum), and scores of all updates are put together. Non-members are rows of the test set.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from unskew.audit.attack_cases import AttackCase
from unskew.audit.leak import Leak
from unskew.audit.membership.final_model import MOST, on_run
from unskew.audit.membership.loss_scores import LabelledRows, by_gain, joined
from unskew.audit.membership.membership_attack import MembershipResult
from unskew.audit.membership.roc import roc
from unskew.audit.replayed_run import ReplayedRun
from unskew.base.per_client import looked_at
from unskew.base.tree import State

MESSAGES = 32  # updates that are looked at, evenly over those that there are


def on_final_model(world: ReplayedRun, shadows: int, seed: int) -> list[MembershipResult]:
    """By loss, and by so many shadow models."""
    run, data = world.run, world.prepared.dataset
    index = world.context.client_rows.index
    rows = torch.unique(torch.cat([index[k] for k in looked_at(world.context.task.clients)]))
    drawn = torch.Generator().manual_seed(seed)
    mine = rows[torch.randperm(len(rows), generator=drawn)[:MOST]]
    fresh = torch.randperm(len(data.test), generator=drawn)[: 2 * MOST]
    members = LabelledRows(run.prepare(data.train.x[mine]), data.train.y[mine])
    others = LabelledRows(run.prepare(data.test.x[fresh]), data.test.y[fresh])
    return on_run(run, members, others, count=shadows, seed=seed)


def on_updates(world: ReplayedRun, cases: list[AttackCase], seed: int) -> list[MembershipResult]:
    """By the gain of each row over an update, the scores of all updates together."""
    if not cases:
        return []
    every = max(len(cases) // MESSAGES, 1)
    chosen = list(islice(cases, 0, None, every))[:MESSAGES]
    true, false = [], []
    for case, others in zip(chosen, _fresh(world, len(chosen), seed, chosen[0].x)):
        members = LabelledRows(case.x, case.y)
        before, after = _before_and_after(case)
        scores = by_gain(case.replay.model, before, after, joined(members, others))
        true.append(scores[: len(members)])
        false.append(scores[len(members) :])
    return [MembershipResult("loss gain of updates", roc(np.concatenate(true), np.concatenate(false)))]


def _fresh(world: ReplayedRun, parts: int, seed: int, like: Tensor) -> Iterator[LabelledRows]:
    """Test rows for each of so many updates, as many as possible up to the most."""
    test, context = world.prepared.dataset.test, world.context
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
    each = max(min(len(test), -(-MOST // parts)), 1)
    for i in range(parts):
        rows = order.roll(-i * each)[:each]
        x = context.client_rows.prepare(test.x[rows].to(context.device))
        yield LabelledRows(x.to(like), test.y[rows].to(context.device))


def _before_and_after(case: AttackCase) -> tuple[State, State]:
    """The model that the sender began with, and the one it came to, as far as its update tells."""
    before = case.replay.received.model
    way = case.replay.work.lr * case.replay.work.effective_steps(len(case.hidden[0].moments))
    return before, before | {name: before[name] - way * g for name, g in case.target.items()}


def as_leaks(found: list[MembershipResult], method: str, dataset: str, seed: int) -> list[Leak]:
    """Area and rates as rows; a rate that so few non-members cannot show says what it is instead."""
    rows = []
    for one in found:
        values = [("auc", "", one.roc.auc.value)]
        for rate in one.roc.rates:
            space = "percent" if rate.resolved else f"percent, without a false positive among {rate.non_members}"
            values.append((f"tpr@{100 * rate.false_rate:g}%", space, rate.found.value))
        rows += [Leak(method, "none", one.attack, dataset, -1, -1, *value, seed) for value in values]
    return rows
