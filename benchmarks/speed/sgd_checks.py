"""Checks of the SGD kernels against torch's SGD in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.engines.stacked.kernels.sgd import BLOCK, SMALL_LEAF, sgd_step, sgd_update
from unskew.engines.stacked.kernels.sgd_lowrank import sgd_lowrank_step

# Weight decay, momentum, nesterov
SGD_CASES = [(0.0, 0.0, False), (0.1, 0.0, False), (0.0, 0.9, False), (0.1, 0.9, False), (0.1, 0.9, True)]
# Clients, rows of a batch, outputs and inputs of a linear layer
LOWRANK_SHAPES = [(2, 10, 20, 72), (1, 50, 64, 128), (3, 70, 33, 65), (2, 3, 130, 1000)]


def relative_distance(result: Tensor, exact: Tensor) -> float:
    return float((result.double() - exact).norm() / exact.norm().clamp_min(1e-9))


def sgd_distance(device: str, decay: float, momentum: float, nesterov: bool) -> float:
    """Four steps with a changing rate against torch's SGD in float64; memory after the leaves must not change."""
    sizes, rate = (1, 500, BLOCK, BLOCK + 1, SMALL_LEAF + 12, 2 * SMALL_LEAF), torch.zeros((), device=device)
    memory = [torch.randn(2, n, device=device) for n in sizes]
    leaves, guard = [t[0] for t in memory], [t[1].clone() for t in memory]
    velocities = [torch.zeros_like(leaf) for leaf in leaves] if momentum else []
    exact = [leaf.double().requires_grad_() for leaf in leaves]
    reference = torch.optim.SGD(exact, 1.0, weight_decay=decay, momentum=momentum, nesterov=nesterov)
    keys = {"weight_decay": decay, "momentum": momentum, "nesterov": nesterov, "dampening": 0.0, "maximize": False}
    for step, lr in enumerate((0.1, 0.2, 0.05, 0.4)):
        reference.param_groups[0]["lr"] = float(rate.fill_(lr))
        grads = [torch.randn_like(leaf) for leaf in leaves]
        for leaf, grad in zip(exact, grads):
            leaf.grad = grad.double()
        reference.step()
        if step < 2:  # update every leaf with the kernel, then only those that it supports
            for leaf, grad, velocity in zip(leaves, grads, velocities or [None] * len(leaves)):
                sgd_step(leaf, grad, velocity, rate, decay, momentum, nesterov)
        else:
            sgd_update(leaves, grads, velocities, lr=rate, fused=True, **keys)
    guard_intact = all(torch.equal(t[1], b) for t, b in zip(memory, guard))
    slots = [(v, reference.state[e]["momentum_buffer"]) for v, e in zip(velocities, exact)]
    pairs = [*((leaf, e.detach()) for leaf, e in zip(leaves, exact)), *slots]
    return float(torch.tensor([relative_distance(a, b) for a, b in pairs]).max()) if guard_intact else 1.0


def sgd_lowrank_distance(
    device: str, dtype: torch.dtype, shape: tuple[int, int, int, int], decay: float, momentum: float, nesterov: bool
) -> float:
    """Two steps with a low-rank gradient, the second with `extra`, against torch's SGD in float64, by displacement."""
    (m, b, o, i), rate = shape, torch.full((), 0.1, device=device)
    memory = torch.randn(m + 1, o, i, device=device)
    leaf, start, guard = memory[:m], memory[:m].double(), memory[m].clone()
    velocity = torch.zeros_like(leaf) if momentum else None
    exact = start.clone().requires_grad_()
    keys = {"weight_decay": decay, "momentum": momentum, "nesterov": nesterov}
    reference = torch.optim.SGD([exact], float(rate), **keys)
    for extra in (None, torch.randn_like(leaf)):
        back, rows = (torch.randn(m, b, n, device=device).to(dtype) for n in (o, i))
        exact.grad = torch.bmm(back.double().transpose(1, 2), rows.double()) + (0 if extra is None else extra.double())
        reference.step()
        sgd_lowrank_step(leaf, back, rows, extra, velocity, rate, decay, momentum, nesterov)
    pairs = [(leaf.double() - start, exact.detach() - start)]
    pairs += [(velocity, reference.state[exact]["momentum_buffer"])] if velocity is not None else []
    guard_intact = torch.equal(memory[m], guard)
    return float(torch.tensor([relative_distance(a, b) for a, b in pairs]).max()) if guard_intact else 1.0
