"""Membership inference in an audit: on the run's final model and on the recorded updates.

The members of a model are the rows of its clients; those of an update are the rows that its sender (or the senders of a
sum) trained on, and the scores of all updates are pooled. Non-members are rows of the test set.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from unskew.audits.attack_cases import AttackCase
from unskew.audits.leak import Leak
from unskew.audits.membership.final_model import MAX_ROWS, attack_run
from unskew.audits.membership.loss_scores import LabelledRows, concatenate, score_by_gain
from unskew.audits.membership.membership_attack import MembershipResult
from unskew.audits.membership.roc import roc
from unskew.audits.replayed_run import ReplayedRun
from unskew.base.per_client import clients_for_statistics
from unskew.base.tree import State

MAX_MESSAGES = 32  # at most so many updates are attacked, evenly spaced over all of them


def attack_final_model(replayed: ReplayedRun, shadow_count: int, seed: int) -> list[MembershipResult]:
    """Attack the final model by loss and, if shadow_count > 0, by shadow models."""
    run, data = replayed.run, replayed.prepared.dataset
    index = replayed.context.client_rows.index
    rows = torch.unique(torch.cat([index[k] for k in clients_for_statistics(replayed.context.task.clients)]))
    generator = torch.Generator().manual_seed(seed)
    chosen_rows = rows[torch.randperm(len(rows), generator=generator)[:MAX_ROWS]]
    fresh = torch.randperm(len(data.test), generator=generator)[: 2 * MAX_ROWS]
    members = LabelledRows(run.prepare(data.train.x[chosen_rows]), data.train.y[chosen_rows])
    others = LabelledRows(run.prepare(data.test.x[fresh]), data.test.y[fresh])
    return attack_run(run, members, others, count=shadow_count, seed=seed)


def attack_updates(replayed: ReplayedRun, cases: list[AttackCase], seed: int) -> list[MembershipResult]:
    """Attack updates by how much each lowers the loss of a row; the scores of all updates are pooled."""
    if not cases:
        return []
    stride = max(len(cases) // MAX_MESSAGES, 1)
    chosen = list(islice(cases, 0, None, stride))[:MAX_MESSAGES]
    member_scores, other_scores = [], []
    for case, others in zip(chosen, _fresh_rows(replayed, len(chosen), seed, chosen[0].x)):
        members = LabelledRows(case.x, case.y)
        before, after = _before_and_after(case)
        scores = score_by_gain(case.replay.model, before, after, concatenate(members, others))
        member_scores.append(scores[: len(members)])
        other_scores.append(scores[len(members) :])
    curve = roc(np.concatenate(member_scores), np.concatenate(other_scores))
    return [MembershipResult("loss gain of updates", curve)]


def _fresh_rows(replayed: ReplayedRun, parts: int, seed: int, like: Tensor) -> Iterator[LabelledRows]:
    """Test rows for each of so many updates, in total about MAX_ROWS; they repeat if the test set is smaller."""
    test, context = replayed.prepared.dataset.test, replayed.context
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
    each = max(min(len(test), -(-MAX_ROWS // parts)), 1)
    for i in range(parts):
        rows = order.roll(-i * each)[:each]
        x = context.client_rows.prepare(test.x[rows].to(context.device))
        yield LabelledRows(x.to(like), test.y[rows].to(context.device))


def _before_and_after(case: AttackCase) -> tuple[State, State]:
    """The model that the sender started from, and the one after training that its update implies."""
    before = case.replay.received.model
    total_lr = case.replay.work.lr * case.replay.work.effective_steps(len(case.secrets[0].steps))
    return before, before | {name: before[name] - total_lr * g for name, g in case.target.items()}


def membership_leaks(results: list[MembershipResult], method: str, dataset: str, seed: int) -> list[Leak]:
    """AUC and true positive rates as leaks; the space says so if there are too few non-members for a rate."""
    leaks = []
    for result in results:
        values = [("auc", "", result.roc.auc.value)]
        for rate in result.roc.rates:
            space = "percent" if rate.resolved else f"percent, unresolved with {rate.non_members} non-members"
            values.append((f"tpr@{100 * rate.false_rate:g}%", space, rate.tpr.value))
        leaks += [Leak(method, "none", result.attack, dataset, -1, -1, *value, seed) for value in values]
    return leaks
