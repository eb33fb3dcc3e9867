"""One optimiser step as a pure function, so that an attack can differentiate through a client's training.

The same numbers as `protocol/optimiser.py`, which writes in place: a test compares the two.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.base.tree import State, Tree
from unskew.protocol.work import Work

TINY = 1e-30  # under a root: its slope at 0 is not finite, and 0 times that is not a number


def move(work: Work, leaves: State, grads: State, slots: Tree) -> tuple[State, Tree]:
    """The leaves after one step along their gradients, and what the optimiser remembers by leaf."""
    if work.scope == "step":
        slots = {}
    if work.clip is not None:
        norm = (torch.stack([g.square().sum() for g in grads.values()]).sum() + TINY).sqrt()
        factor = (work.clip / norm.clamp_min(1e-12)).clamp_max(1.0)
        grads = {name: g * factor for name, g in grads.items()}
    one = _sgd if work.optimiser == "sgd" else _adam
    moved, kept = {}, {}
    for name, leaf in leaves.items():
        moved[name], kept[name] = one(work, leaf, grads[name], slots.get(name, {}))
    return moved, kept


def _sgd(work: Work, leaf: Tensor, g: Tensor, slot: State) -> tuple[Tensor, State]:
    g = g + work.weight_decay * leaf
    if not work.momentum:
        return leaf - work.lr * g, {}
    v = work.momentum * slot["v"] + g if slot else g
    return leaf - work.lr * (g + work.momentum * v if work.nesterov else v), {"v": v}


def _adam(work: Work, leaf: Tensor, g: Tensor, slot: State) -> tuple[Tensor, State]:
    one, two = work.betas
    if work.optimiser == "adamw":
        leaf = leaf * (1 - work.lr * work.weight_decay)
    else:
        g = g + work.weight_decay * leaf
    t = slot["t"] + 1 if slot else torch.ones((), device=leaf.device, dtype=leaf.dtype)
    m = (one * slot["m"] if slot else 0.0) + (1 - one) * g
    v = (two * slot["v"] if slot else 0.0) + (1 - two) * g.square()
    root = (v + TINY).sqrt() / (1 - two**t).sqrt()
    return leaf - work.lr / (1 - one**t) * m / (root + 1e-8), {"t": t, "m": m, "v": v}
