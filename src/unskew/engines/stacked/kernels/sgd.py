"""A step of SGD in place, in one pass over each large leaf; the learning rate is read from a tensor on the device.

PyTorch's fused form processes all leaves with at most 320 blocks at a time: 279 us for the 975 MB of a step of
`pfl-cifar` and 132 us for the 430 MB of `lmd-shards-10` on an H200, which take 221 and 99 us here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.optim.sgd import sgd

from unskew.engines.stacked.kernels.sgd_lowrank import apply_sgd, sgd_lowrank_step
from unskew.engines.stacked.lowrank_grad import LowRankGrad

BLOCK = 2048  # numbers per program
WARPS = 8  # of a program: a thread has 2 loads of 16 bytes from each tensor in flight, in 32 registers
SMALL_LEAF = 2**15  # smaller leaves, of which a net may have a hundred, share one launch of PyTorch's


@triton.jit(do_not_specialize=["N"])
def _sgd(leaf, gradient, velocity, rate, N, DECAY, MOMENTUM, NESTEROV: tl.constexpr, BN: tl.constexpr):
    """Only the last block has a mask: with a mask of arbitrary length all loads and stores would be 4 bytes wide."""
    begin, at = tl.program_id(0).to(tl.int64) * BN, tl.arange(0, BN)
    if begin + BN <= N:
        d = tl.load(gradient + begin + at)
        apply_sgd(leaf, velocity, rate, DECAY, MOMENTUM, NESTEROV, begin, at, None, d)
    else:
        d = tl.load(gradient + begin + at, mask=at < N - begin)
        apply_sgd(leaf, velocity, rate, DECAY, MOMENTUM, NESTEROV, begin, at, at < N - begin, d)


def sgd_step(
    leaf: Tensor, gradient: Tensor, velocity: Tensor | None, lr: Tensor, decay: float, momentum: float, nesterov: bool
) -> None:
    """One step of one leaf; `velocity` is None without momentum."""
    n = leaf.numel()
    grid = (triton.cdiv(n, BLOCK),)
    _sgd[grid](leaf, gradient, velocity, lr, n, decay or None, momentum, nesterov, BLOCK, num_warps=WARPS)


def sgd_update(
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
    """Like torch's `sgd` without dampening, which updates all leaves that the kernels do not support in one call."""
    slots, settings = velocities or [None] * len(leaves), (weight_decay, momentum, nesterov)
    rest = dict[int, Tensor]()
    for i, (leaf, grad, velocity) in enumerate(zip(leaves, grads, slots, strict=True)):
        velocity_if_any = [velocity] * bool(momentum)
        if isinstance(grad, LowRankGrad) and supports(lr, leaf, *velocity_if_any):
            sgd_lowrank_step(leaf, *grad, velocity, lr, *settings)
            continue
        grad = grad.dense(leaf.dtype) if isinstance(grad, LowRankGrad) else grad
        if supports(lr, leaf, grad, *velocity_if_any):
            sgd_step(leaf, grad, velocity, lr, *settings)
        else:
            rest[i] = grad
    if rest:
        buffers = [slots[i] for i in rest] if momentum else []
        sgd(
            [leaves[i] for i in rest], list(rest.values()), buffers,
            lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, **others,
        )  # fmt: skip
        for i, velocity in zip(rest, buffers):  # torch creates missing velocities in the list
            velocities[i] = velocity


def supports(lr: Any, leaf: Tensor, *others: Tensor | None) -> bool:
    """Whether a kernel can update a leaf; the others are its gradient, if dense, and with momentum its velocity."""
    suited = (t is not None and t.dtype == torch.float32 and t.is_contiguous() for t in (leaf, *others))
    return isinstance(lr, Tensor) and leaf.numel() >= SMALL_LEAF and all(suited)
