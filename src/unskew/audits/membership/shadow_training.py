"""Trains shadow models on the attacker's rows with the run's optimiser settings, as a single client would.

Differs from the run: the rows are the attacker's, pooled and without skew, epochs stand in for rounds, and the learning
rate is that of the given work. A shadow of one client's update starts from the model that the client received and does
one round's work: the client's own training without the terms that a method adds to its loss.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from unskew.audits.membership.loss_scores import LabelledRows
from unskew.audits.membership.shadow_models import Train
from unskew.base.tree import State
from unskew.client.round import leaves_and_buffers, optimiser_step
from unskew.models.model import Model
from unskew.protocol.work import Work


def client_trainer(model: Model, start: State, work: Work) -> Train:
    """Training from `start` with cross-entropy and the work's optimiser, batches and amount."""

    def train(rows: LabelledRows, seed: int) -> State:
        generator = torch.Generator().manual_seed(seed)
        leaves, buffers = leaves_and_buffers(model, start)
        optimiser = work.make_optimiser(leaves.values())
        order = torch.empty(0, dtype=torch.int64)
        for step in range(work.steps_for(len(rows))):
            if step % work.steps_per_epoch(len(rows)) == 0:
                order = torch.randperm(len(rows), generator=generator)
            first = step % work.steps_per_epoch(len(rows)) * work.batch
            chosen = order[first : first + work.batch].to(rows.x.device)
            state = leaves | buffers
            h = rows.x[chosen]
            mask = torch.randint(0, 2**31, (), generator=generator)
            for i in range(model.depth):
                h = model.block(state, h, i, train=True, seed=mask)
            buffers = {name: state[name] for name in model.buffers}
            optimiser_step(F.cross_entropy(h.float(), rows.y[chosen]), optimiser, work, stacked=False)
        return {name: leaf.detach() for name, leaf in leaves.items()} | buffers

    return train


def run_trainer(model: Model, start: State, work: Work, rounds: int, participation: float) -> Train:
    """Training with as many epochs as a client did on average in the whole run."""
    passes = max(1, round(rounds * participation * (work.epochs or 1)))
    return client_trainer(model, start, replace(work, epochs=passes, steps=None))
