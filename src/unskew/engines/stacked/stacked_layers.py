"""The zoo's layers for a stack of clients: the same names and numbers, another rule for the leading axis.

Inside a stack an image batch lies in memory as [clients, channels, batch, height, width]: then a 1x1 convolution is one
batched product, a channel's statistics are one row, and neither needs a copy. Outside a stack the numbers are the same.
PyTorch's own rule makes a cohort's convolutions one grouped one, which starts a kernel for each client: 255 launches a
step of the cnn for ten clients, 8.6 us each. A teacher in this layout took FLea's round from 2.54 to 1.51 s, with the
kernel of `scaling`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.engines.stacked import kernels
from unskew.engines.stacked.linear_grad import product
from unskew.engines.stacked.vmap_rules import front, mapped
from unskew.models.seeded_dropout import LAST, SeededDropout
from unskew.protocol.step_view import at_least_float32


class ConvOptions(NamedTuple):
    """A convolution's numbers, and what comes after it: a ReLU, a pooling, rows made flat."""

    stride: int
    padding: int
    groups: int
    relu: bool = False
    pool: int = 1
    flat: bool = False


def _conv(x: Tensor, w: Tensor, bias: Tensor | None, how: ConvOptions) -> Tensor:
    out = F.conv2d(x, w, bias, how.stride, how.padding, groups=how.groups)
    out = out.relu() if how.relu else out
    return out if how.pool == 1 else F.max_pool2d(out, how.pool)


def _conv_stacked(m: int, dims: tuple[Any, ...], x: Tensor, w: Tensor, bias: Tensor | None, how: ConvOptions) -> Tensor:
    stride, padding, groups, relu, pool, flat = how
    x = front(x, dims[0], m)
    shared = dims[1] is None and (bias is None or dims[2] is None)  # a teacher: one set of filters for all rows
    dense = groups == 1 and (w.shape[2:] != (1, 1) or stride > 1)
    fixed = dense and not (w.requires_grad or (bias is not None and bias.requires_grad))
    ours = kernels.supported(x, w, bias) and (not dense or fixed)
    if shared and not ours:
        out = _conv(x.flatten(0, 1), w, bias, ConvOptions(stride, padding, groups))
        out = out.view(*x.shape[:2], *out.shape[1:])
        return kernels.pool(out, None, 2, relu, pool) if relu or pool > 1 else out
    # In this order: a cast of repeated filters copies all.
    x, w = x.to(_dtype(x)), w.to(_dtype(w))[None] if shared and dense else front(w.to(_dtype(w)), dims[1], m)
    rows, bias = x.transpose(1, 2), None if bias is None else front(bias, dims[2], m).to(x.dtype)
    if groups == 1:
        return kernels.convolve(rows, w, bias, stride, padding, relu, pool, flat).transpose(1, 2)
    planes = kernels.depthwise(rows.flatten(0, 1), w.flatten(0, 2), stride, padding)
    out = planes.view(*rows.shape[:2], *planes.shape[1:])
    if bias is not None or relu or pool > 1:
        out = kernels.pool(out, bias, 1, relu, pool, flat)
    return out.transpose(1, 2)


def _norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    variance, mean = torch.var_mean(at_least_float32(x.detach()), (0, 2, 3), correction=0)
    out = F.batch_norm(x, None, None, gain, shift, True, 0.0, eps)
    return out.relu() if relu else out, mean, variance


def _norm_stacked(
    m: int, dims: tuple[int | None, ...], x: Tensor, gain: Tensor, shift: Tensor, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows = front(x, dims[0], m).transpose(1, 2)
    gain, shift = (front(t, dim, m).flatten() for t, dim in zip((gain, shift), dims[1:3]))
    out, mean, variance = kernels.normalise(rows.flatten(0, 1).flatten(1), gain, shift, eps, relu)
    return out.view(rows.shape).transpose(1, 2), mean.view(m, -1), variance.view(m, -1)


def _scale(x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, relu: bool) -> Tensor:
    return kernels.scale(x[None], mean[None], gain[None], shift[None], 2, relu)[0]


def _scale_stacked(
    m: int, dims: tuple[int | None, ...], x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, relu: bool
) -> Tensor:
    x, mean, gain, shift = (front(t, dim, m) for t, dim in zip((x, mean, gain, shift), dims))
    if x.transpose(1, 2).is_contiguous():  # as convolutions of a stack leave it
        return kernels.scale(x.transpose(1, 2), mean, gain, shift, 1, relu).transpose(1, 2)
    return kernels.scale(x, mean, gain, shift, 2, relu)


def _pool(x: Tensor, kernel: int) -> Tensor:
    return F.max_pool2d(x, kernel)


def _pool_stacked(m: int, dims: tuple[int | None, ...], x: Tensor, kernel: int) -> Tensor:
    x = front(x, dims[0], m)
    if x.transpose(1, 2).is_contiguous():  # planes are pooled alike in either order
        return kernels.pool(x.transpose(1, 2), None, 1, False, kernel).transpose(1, 2)
    return kernels.pool(x, None, 2, False, kernel)


def _linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, w, bias)


def _linear_stacked(m: int, dims: tuple[int | None, ...], x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    x = front(x, dims[0], m)
    if dims[1] is None and (bias is None or dims[2] is None):
        return F.linear(x, w, bias)
    x, w = x.to(_dtype(x)), front(w, dims[1], m)
    rows = x.reshape(m, -1, x.shape[-1])
    out = product(rows, w, _dtype(w))
    if bias is not None:
        out = out + front(bias, dims[2], m).to(out.dtype)[:, None]
    return out.reshape(*x.shape[:-1], w.shape[1])


def _drop(x: Tensor, seed: Tensor, p: float) -> Tensor:
    return kernels.reference.drop(x[None], seed[None], p)[0]


def _drop_stacked(m: int, dims: tuple[int | None, ...], x: Tensor, seed: Tensor, p: float) -> Tensor:
    return kernels.seeded_dropout(front(x, dims[0], m), front(seed, dims[1], m), p)


convolution, normalisation, scaling, max_pool, linear, dropout = (
    mapped(_conv, _conv_stacked),
    mapped(_norm, _norm_stacked),
    mapped(_scale, _scale_stacked),
    mapped(_pool, _pool_stacked),
    mapped(_linear, _linear_stacked),
    mapped(_drop, _drop_stacked),
)


class Conv2d(nn.Conv2d):
    """Square strides and zero padding, dense or depthwise; with the ReLU and the pooling that follow it.

    `flat`: rows are made flat next, and lie in memory one after another.
    """

    relu, pool, flat = False, 1, False

    def forward(self, h: Tensor) -> Tensor:
        how = ConvOptions(self.stride[0], int(self.padding[0]), self.groups, self.relu, self.pool, self.flat)
        return convolution(h, self.weight, self.bias, how)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        if type(layer) is not nn.Conv2d or isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            return False
        square = len({*layer.stride}) == len({*layer.padding}) == 1 and layer.dilation == (1, 1)
        depthwise = layer.groups == layer.in_channels == layer.out_channels
        dense = layer.groups == 1 and len({*layer.kernel_size}) == 1
        return square and layer.padding[0] < min(layer.kernel_size) and (dense or depthwise)


class BatchNorm2d(nn.BatchNorm2d):
    """With gain, shift, running statistics and the ReLU that follows."""

    relu = False

    def forward(self, h: Tensor) -> Tensor:
        if not self.training:
            gain = self.weight / (self.running_var + self.eps).sqrt()  # type: ignore[operator, union-attr]
            return scaling(h, self.running_mean, gain, self.bias, self.relu)
        out, mean, variance = normalisation(h, self.weight, self.bias, self.eps, self.relu)
        n = h.shape[0] * h.shape[2] * h.shape[3]
        running = ((self.running_mean, mean), (self.running_var, variance * (n / max(n - 1, 1))))
        for kept, new in running:
            kept.mul_(1 - self.momentum).add_(new.to(kept.dtype), alpha=self.momentum)  # type: ignore[union-attr, operator]
        self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        return out

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return type(layer) is nn.BatchNorm2d and layer.affine and layer.track_running_stats


class BatchNorm1d(nn.BatchNorm1d):
    """In float32 where rows are bf16: mapped over clients, PyTorch wants rows and statistics of one type."""

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(at_least_float32(h)).to(h.dtype)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return type(layer) is nn.BatchNorm1d


class MaxPool2d(nn.MaxPool2d):
    """Square windows that do not overlap."""

    def forward(self, h: Tensor) -> Tensor:
        return max_pool(h, self.kernel_size)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        if type(layer) is not nn.MaxPool2d or layer.return_indices or layer.ceil_mode:
            return False
        plain = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
        # A place in a window is kept in one byte.
        return plain and isinstance(k := layer.kernel_size, int) and layer.stride == k and k * k < 128


class MeanPool2d(nn.AdaptiveAvgPool2d):
    """Down to one number a channel."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean((-2, -1), keepdim=True)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return type(layer) is nn.AdaptiveAvgPool2d and layer.output_size in (1, (1, 1))


class Linear(nn.Linear):
    """Of any kind of rows."""

    def forward(self, h: Tensor) -> Tensor:
        return linear(h, self.weight, self.bias)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return type(layer) is nn.Linear


class Dropout(SeededDropout):
    """Of single numbers."""

    def forward(self, h: Tensor) -> Tensor:
        return dropout(h, self.seed, self.p) if self.training and self.p else h

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return type(layer) is SeededDropout and not layer.channels and layer.p <= LAST


def for_stack(blocks: nn.Sequential) -> nn.Sequential:
    """The same blocks and tensors with layers that know stacks; whatever does not fit stays as it is."""
    for layer in blocks.modules():
        for kind in (Conv2d, BatchNorm1d, BatchNorm2d, MaxPool2d, MeanPool2d, Linear, Dropout):
            if kind.fits(layer):
                layer.__class__ = kind
    return blocks


def _dtype(t: Tensor) -> torch.dtype:
    """What autocast would choose, which does not look inside our own functions."""
    kind = t.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) and t.is_floating_point() else t.dtype
