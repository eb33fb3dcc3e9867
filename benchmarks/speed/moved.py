"""Steps of SGD by the kernels against torch's in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.engines.stacked.kernels.sgd import BLOCK, SMALL, descend, move
from unskew.engines.stacked.kernels.sgd_lowrank import follow

# Weight decay, momentum, nesterov
DESCENTS = [(0.0, 0.0, False), (0.1, 0.0, False), (0.0, 0.9, False), (0.1, 0.9, False), (0.1, 0.9, True)]
# Clients, rows of a batch, outputs and inputs of a linear layer
FOLLOWED = [(2, 10, 20, 72), (1, 50, 64, 128), (3, 70, 33, 65), (2, 3, 130, 1000)]


def far(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm().clamp_min(1e-9))


def descent_apart(device: str, decay: float, momentum: float, nesterov: bool) -> float:
    """Four steps at a changing rate against torch's SGD in float64; memory beyond the leaves must stay as it is."""
    sizes, rate = (1, 500, BLOCK, BLOCK + 1, SMALL + 12, 2 * SMALL), torch.zeros((), device=device)
    memory = [torch.randn(2, n, device=device) for n in sizes]
    leaves, beyond = [t[0] for t in memory], [t[1].clone() for t in memory]
    velocities = [torch.zeros_like(leaf) for leaf in leaves] if momentum else []
    exact = [leaf.double().requires_grad_() for leaf in leaves]
    theirs = torch.optim.SGD(exact, 1.0, weight_decay=decay, momentum=momentum, nesterov=nesterov)
    keys = {"weight_decay": decay, "momentum": momentum, "nesterov": nesterov, "dampening": 0.0, "maximize": False}
    for step, lr in enumerate((0.1, 0.2, 0.05, 0.4)):
        theirs.param_groups[0]["lr"] = float(rate.fill_(lr))
        grads = [torch.randn_like(leaf) for leaf in leaves]
        for leaf, grad in zip(exact, grads):
            leaf.grad = grad.double()
        theirs.step()
        if step < 2:  # every leaf by the kernel, then only those that it takes
            for leaf, grad, velocity in zip(leaves, grads, velocities or [None] * len(leaves)):
                move(leaf, grad, velocity, rate, decay, momentum, nesterov)
        else:
            descend(leaves, grads, velocities, lr=rate, fused=True, **keys)
    kept = all(torch.equal(t[1], b) for t, b in zip(memory, beyond))
    slots = [(v, theirs.state[e]["momentum_buffer"]) for v, e in zip(velocities, exact)]
    pairs = [*((leaf, e.detach()) for leaf, e in zip(leaves, exact)), *slots]
    return float(torch.tensor([far(a, b) for a, b in pairs]).max()) if kept else 1.0


def follow_apart(
    device: str, dtype: torch.dtype, shape: tuple[int, int, int, int], decay: float, momentum: float, nesterov: bool
) -> float:
    """Two steps along a product and what is beside it, against torch's SGD in float64, by the way that weights went."""
    (m, b, o, i), rate = shape, torch.full((), 0.1, device=device)
    memory = torch.randn(m + 1, o, i, device=device)
    leaf, start, beyond = memory[:m], memory[:m].double(), memory[m].clone()
    velocity = torch.zeros_like(leaf) if momentum else None
    exact = start.clone().requires_grad_()
    keys = {"weight_decay": decay, "momentum": momentum, "nesterov": nesterov}
    theirs = torch.optim.SGD([exact], float(rate), **keys)
    for beside in (None, torch.randn_like(leaf)):
        back, rows = (torch.randn(m, b, n, device=device).to(dtype) for n in (o, i))
        exact.grad = torch.bmm(back.double().transpose(1, 2), rows.double()) + (
            0 if beside is None else beside.double()
        )
        theirs.step()
        follow(leaf, back, rows, beside, velocity, rate, decay, momentum, nesterov)
    pairs = [(leaf.double() - start, exact.detach() - start)]
    pairs += [(velocity, theirs.state[exact]["momentum_buffer"])] if velocity is not None else []
    kept = torch.equal(memory[m], beyond)
    return float(torch.tensor([far(a, b) for a, b in pairs]).max()) if kept else 1.0
