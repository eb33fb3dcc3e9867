"""One optimiser step as a pure function, so that an attack can differentiate through a client's training.

Gives the same numbers as `protocol/optimiser.py`, which updates in place; a test compares the two.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.base.tree import State, Tree
from unskew.protocol.work import Work

TINY = 1e-30  # added under square roots: their derivative at 0 is infinite, and 0 * inf is NaN


def functional_optimiser_step(work: Work, params: State, grads: State, opt_state: Tree) -> tuple[State, Tree]:
    """The parameters after one step with their gradients, and the optimiser state by parameter."""
    if work.scope == "step":
        opt_state = {}
    if work.clip is not None:
        norm = (torch.stack([g.square().sum() for g in grads.values()]).sum() + TINY).sqrt()
        factor = (work.clip / norm.clamp_min(1e-12)).clamp_max(1.0)
        grads = {name: g * factor for name, g in grads.items()}
    step = _sgd if work.optimiser == "sgd" else _adam
    new_params, new_state = {}, {}
    for name, param in params.items():
        new_params[name], new_state[name] = step(work, param, grads[name], opt_state.get(name, {}))
    return new_params, new_state


def _sgd(work: Work, param: Tensor, g: Tensor, state: State) -> tuple[Tensor, State]:
    g = g + work.weight_decay * param
    if not work.momentum:
        return param - work.lr * g, {}
    v = work.momentum * state["v"] + g if state else g
    return param - work.lr * (g + work.momentum * v if work.nesterov else v), {"v": v}


def _adam(work: Work, param: Tensor, g: Tensor, state: State) -> tuple[Tensor, State]:
    beta1, beta2 = work.betas
    if work.optimiser == "adamw":
        param = param * (1 - work.lr * work.weight_decay)
    else:
        g = g + work.weight_decay * param
    t = state["t"] + 1 if state else torch.ones((), device=param.device, dtype=param.dtype)
    m = (beta1 * state["m"] if state else 0.0) + (1 - beta1) * g
    v = (beta2 * state["v"] if state else 0.0) + (1 - beta2) * g.square()
    root = (v + TINY).sqrt() / (1 - beta2**t).sqrt()
    return param - work.lr / (1 - beta1**t) * m / (root + 1e-8), {"t": t, "m": m, "v": v}
