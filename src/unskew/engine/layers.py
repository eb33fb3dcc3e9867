"""The zoo's layers for a stack of clients: the same names and numbers, another rule for the leading axis.

Inside a stack an image batch lies in memory as [clients, channels, batch, height, width]: then a 1x1 convolution is one
batched product, a channel's statistics are one row, and neither needs a copy. Outside a stack the layers are ordinary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.engine import kernels

Stacked = Callable[..., Any]


def mapped(plain: Callable[..., Any], stacked: Stacked) -> Callable[..., Any]:
    """`plain`, but under vmap `stacked(m, in_dims, *args)`, whose results have the clients in front."""

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            return plain(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*(a for a in inputs if isinstance(a, Tensor)))
            ctx.rest = [None if isinstance(a, Tensor) else (a,) for a in inputs]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            tensors = iter(ctx.saved_tensors)

            def again(*given: Tensor) -> Any:
                left = iter(given)
                return plain(*(next(left) if rest is None else rest[0] for rest in ctx.rest))

            pull = torch.func.vjp(again, *tensors)[1]
            found = iter(pull(grads if len(grads) > 1 else grads[0]))
            return tuple(next(found) if rest is None else None for rest in ctx.rest)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
            out = stacked(info.batch_size, in_dims, *args)
            return out, tuple(0 for _ in out) if isinstance(out, tuple) else 0

    return Rule.apply


def front(t: Tensor, dim: int | None, m: int) -> Tensor:
    """The clients' axis first; what all clients share is repeated without a copy."""
    return t.expand(m, *t.shape) if dim is None else t.movedim(dim, 0)


def _conv(x: Tensor, w: Tensor, bias: Tensor | None, stride: int, padding: int, groups: int) -> Tensor:
    return F.conv2d(x, w, bias, stride, padding, groups=groups)


def _conv_stacked(
    m: int,
    dims: tuple[int | None, ...],
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: int,
    groups: int,
) -> Tensor:
    x = front(x, dims[0], m)
    if dims[1] is None and (bias is None or dims[2] is None):  # a teacher: one set of filters for all rows
        out = _conv(x.flatten(0, 1), w, bias, stride, padding, groups)
        return out.view(*x.shape[:2], *out.shape[1:])
    x, w = (t.to(_dtype(t)) for t in (x, front(w, dims[1], m)))
    rows = x.transpose(1, 2)
    if groups == 1:
        out = kernels.convolve(rows, w, stride, padding)
    else:
        planes = kernels.depthwise(rows.flatten(0, 1), w.flatten(0, 2), stride, padding)
        out = planes.view(*rows.shape[:2], *planes.shape[1:])
    if bias is not None:
        out = out + front(bias, dims[2], m).to(out.dtype)[:, :, None, None, None]
    return out.transpose(1, 2)


def _norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    variance, mean = torch.var_mean(x.detach(), (0, 2, 3), correction=0)
    return F.batch_norm(x, None, None, gain, shift, True, 0.0, eps), mean, variance


def _norm_stacked(
    m: int, dims: tuple[int | None, ...], x: Tensor, gain: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = front(x, dims[0], m).transpose(1, 2)
    gain, shift = (front(t, dim, m).flatten() for t, dim in zip((gain, shift), dims[1:]))
    out, mean, variance = kernels.normalise(rows.flatten(0, 1).flatten(1), gain, shift, eps)
    return out.view(rows.shape).transpose(1, 2), mean.view(m, -1), variance.view(m, -1)


def _pool(x: Tensor, kernel: int) -> Tensor:
    return F.max_pool2d(x, kernel)


def _pool_stacked(m: int, dims: tuple[int | None, ...], x: Tensor, kernel: int) -> Tensor:
    x = front(x, dims[0], m)
    rows = x.transpose(1, 2) if x.transpose(1, 2).is_contiguous() else x  # planes are pooled alike in either order
    out = kernels.largest(rows.flatten(0, 1), kernel)
    out = out.view(*rows.shape[:2], *out.shape[1:])
    return out if rows is x else out.transpose(1, 2)


convolution, normalisation, max_pool = (
    mapped(_conv, _conv_stacked),
    mapped(_norm, _norm_stacked),
    mapped(_pool, _pool_stacked),
)


class Conv2d(nn.Conv2d):
    """Square strides and zero padding, dense or depthwise."""

    def forward(self, h: Tensor) -> Tensor:
        return convolution(h, self.weight, self.bias, self.stride[0], self.padding[0], self.groups)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        if type(layer) is not nn.Conv2d or isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            return False
        square = len({*layer.stride}) == len({*layer.padding}) == 1 and layer.dilation == (1, 1)
        depthwise = layer.groups == layer.in_channels == layer.out_channels
        return square and layer.padding[0] < min(layer.kernel_size) and (layer.groups == 1 or depthwise)


class BatchNorm2d(nn.BatchNorm2d):
    """With gain, shift and running statistics; outside training the ordinary layer."""

    def forward(self, h: Tensor) -> Tensor:
        if not self.training:
            return super().forward(h)
        out, mean, variance = normalisation(h, self.weight, self.bias, self.eps)
        n = h.shape[0] * h.shape[2] * h.shape[3]
        running = ((self.running_mean, mean), (self.running_var, variance * (n / max(n - 1, 1))))
        for kept, new in running:
            kept.mul_(1 - self.momentum).add_(new.to(kept.dtype) * self.momentum)  # type: ignore[union-attr, operator]
        self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        return out

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return type(layer) is nn.BatchNorm2d and layer.affine and layer.track_running_stats


class MaxPool2d(nn.MaxPool2d):
    """Square windows that do not overlap."""

    def forward(self, h: Tensor) -> Tensor:
        return max_pool(h, self.kernel_size)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        if type(layer) is not nn.MaxPool2d or layer.return_indices or layer.ceil_mode:
            return False
        plain = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
        return plain and isinstance(layer.kernel_size, int) and layer.stride == layer.kernel_size


class MeanPool2d(nn.AdaptiveAvgPool2d):
    """Down to one number a channel."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean((-2, -1), keepdim=True)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return type(layer) is nn.AdaptiveAvgPool2d and layer.output_size in (1, (1, 1))


def for_stack(blocks: nn.Sequential) -> nn.Sequential:
    """The same blocks and tensors with layers that know stacks; whatever does not fit stays as it is."""
    for layer in blocks.modules():
        for kind in (Conv2d, BatchNorm2d, MaxPool2d, MeanPool2d):
            if kind.fits(layer):
                layer.__class__ = kind
    return blocks


def _dtype(t: Tensor) -> torch.dtype:
    """What autocast would choose, which does not look inside our own functions."""
    kind = t.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) and t.is_floating_point() else t.dtype
