"""A step of SGD in place, in one pass over each large leaf: decay, momentum, and the learning rate read on the device.

PyTorch's fused form goes through all leaves with at most 320 blocks at a time: 279 us for the 975 MB of a step of
`pfl-cifar` and 132 us for the 430 MB of `lmd-shards-10` on an H200, which take 221 and 99 here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.optim.sgd import sgd

from unskew.engines.stacked.kernels.sgd_lowrank import follow, moved
from unskew.engines.stacked.lowrank_grad import LowRankGrad

BLOCK = 2048  # numbers of a program
WARPS = 8  # of a program: a thread has 2 loads of 16 bytes from each tensor under way, in 32 registers
SMALL = 2**15  # numbers of a leaf; PyTorch's common launch keeps those with fewer, of which a net may have a hundred


@triton.jit(do_not_specialize=["N"])
def _descend(leaf, gradient, velocity, rate, N, DECAY, MOMENTUM, NESTEROV: tl.constexpr, BN: tl.constexpr):
    """Only the last block has a mask: one that ends anywhere would make all loads and stores 4 bytes wide."""
    begin, at = tl.program_id(0).to(tl.int64) * BN, tl.arange(0, BN)
    if begin + BN <= N:
        d = tl.load(gradient + begin + at)
        moved(leaf, velocity, rate, DECAY, MOMENTUM, NESTEROV, begin, at, None, d)
    else:
        d = tl.load(gradient + begin + at, mask=at < N - begin)
        moved(leaf, velocity, rate, DECAY, MOMENTUM, NESTEROV, begin, at, at < N - begin, d)


def move(
    leaf: Tensor, gradient: Tensor, velocity: Tensor | None, lr: Tensor, decay: float, momentum: float, nesterov: bool
) -> None:
    """One step of one leaf; without momentum it has no velocity."""
    n = leaf.numel()
    grid = (triton.cdiv(n, BLOCK),)
    _descend[grid](leaf, gradient, velocity, lr, n, decay or None, momentum, nesterov, BLOCK, num_warps=WARPS)


def descend(
    leaves: list[Tensor],
    grads: list[Tensor | LowRankGrad],
    velocities: list[Tensor | None],
    *,
    lr: Any,
    weight_decay: float,
    momentum: float,
    nesterov: bool,
    **others: Any,
) -> None:
    """As torch's `sgd` without dampening, which takes all leaves that the kernels do not, together."""
    slots, how = velocities or [None] * len(leaves), (weight_decay, momentum, nesterov)
    rest = dict[int, Tensor]()
    for i, (leaf, grad, velocity) in enumerate(zip(leaves, grads, slots, strict=True)):
        there = [velocity] * bool(momentum)
        if isinstance(grad, LowRankGrad) and takes(lr, leaf, *there):
            follow(leaf, *grad, velocity, lr, *how)
            continue
        grad = grad.whole(leaf.dtype) if isinstance(grad, LowRankGrad) else grad
        if takes(lr, leaf, grad, *there):
            move(leaf, grad, velocity, lr, *how)
        else:
            rest[i] = grad
    if rest:
        made = [slots[i] for i in rest] if momentum else []
        sgd(
            [leaves[i] for i in rest], list(rest.values()), made,
            lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, **others,
        )  # fmt: skip
        for i, velocity in zip(rest, made):  # it makes those that there were not
            velocities[i] = velocity


def takes(lr: Any, leaf: Tensor, *others: Tensor | None) -> bool:
    """Whether a kernel moves a leaf; the others are its gradient, if it is whole, and with momentum its velocity."""
    known = (t is not None and t.dtype == torch.float32 and t.is_contiguous() for t in (leaf, *others))
    return isinstance(lr, Tensor) and leaf.numel() >= SMALL and all(known)
