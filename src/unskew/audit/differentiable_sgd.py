"""One optimiser step as a pure function, so that an attack can differentiate through a client's training.

Gives the same numbers as `protocol/optimiser.py`, which updates in place; a test compares the two.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.base.tree import State, Tree
from unskew.protocol.work import Work

TINY = 1e-30  # added under square roots: their derivative at 0 is infinite, and 0 * inf is NaN


def optimiser_step(work: Work, leaves: State, grads: State, slots: Tree) -> tuple[State, Tree]:
    """The leaves after one step along their gradients, and the optimiser state by leaf."""
    if work.scope == "step":
        slots = {}
    if work.clip is not None:
        norm = (torch.stack([g.square().sum() for g in grads.values()]).sum() + TINY).sqrt()
        factor = (work.clip / norm.clamp_min(1e-12)).clamp_max(1.0)
        grads = {name: g * factor for name, g in grads.items()}
    step = _sgd if work.optimiser == "sgd" else _adam
    new_leaves, new_slots = {}, {}
    for name, leaf in leaves.items():
        new_leaves[name], new_slots[name] = step(work, leaf, grads[name], slots.get(name, {}))
    return new_leaves, new_slots


def _sgd(work: Work, leaf: Tensor, g: Tensor, slot: State) -> tuple[Tensor, State]:
    g = g + work.weight_decay * leaf
    if not work.momentum:
        return leaf - work.lr * g, {}
    v = work.momentum * slot["v"] + g if slot else g
    return leaf - work.lr * (g + work.momentum * v if work.nesterov else v), {"v": v}


def _adam(work: Work, leaf: Tensor, g: Tensor, slot: State) -> tuple[Tensor, State]:
    beta1, beta2 = work.betas
    if work.optimiser == "adamw":
        leaf = leaf * (1 - work.lr * work.weight_decay)
    else:
        g = g + work.weight_decay * leaf
    t = slot["t"] + 1 if slot else torch.ones((), device=leaf.device, dtype=leaf.dtype)
    m = (beta1 * slot["m"] if slot else 0.0) + (1 - beta1) * g
    v = (beta2 * slot["v"] if slot else 0.0) + (1 - beta2) * g.square()
    root = (v + TINY).sqrt() / (1 - beta2**t).sqrt()
    return leaf - work.lr / (1 - beta1**t) * m / (root + 1e-8), {"t": t, "m": m, "v": v}
