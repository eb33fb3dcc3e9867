"""Layers with vmap rules for a stack of clients; names, parameters and results are those of PyTorch's layers.

Inside a stack an image batch is stored as [clients, channels, batch, height, width], so that a 1x1 convolution is one
batched product, a channel's statistics are one row, and neither needs a copy. PyTorch's own rule turns a cohort's
convolutions into one grouped convolution, which starts a kernel for each client: 255 launches a step of the cnn for ten
clients, 8.6 us each. With a teacher in this layout and the kernel of `scaling`, FLea's round fell from 2.54 to 1.51 s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.engines.stacked import kernels
from unskew.engines.stacked.stacked_linear import stacked_linear
from unskew.engines.stacked.vmap_rules import clients_first, with_vmap_rule
from unskew.models.seeded_dropout import MAX_DROP_RATE, SeededDropout
from unskew.protocol.step_view import at_least_float32


class ConvOptions(NamedTuple):
    """A convolution's options and the operations fused into it: a ReLU, a pooling, a flatten."""

    stride: int
    padding: int
    groups: int
    relu: bool = False
    pool: int = 1
    flat: bool = False


def _conv(x: Tensor, w: Tensor, bias: Tensor | None, options: ConvOptions) -> Tensor:
    out = F.conv2d(x, w, bias, options.stride, options.padding, groups=options.groups)
    out = out.relu() if options.relu else out
    return out if options.pool == 1 else F.max_pool2d(out, options.pool)


def _conv_stacked(
    m: int, dims: tuple[Any, ...], x: Tensor, w: Tensor, bias: Tensor | None, options: ConvOptions
) -> Tensor:
    stride, padding, groups, relu, pool, flat = options
    x = clients_first(x, dims[0], m)
    shared = dims[1] is None and (bias is None or dims[2] is None)  # a teacher: one set of filters for all rows
    dense = groups == 1 and (w.shape[2:] != (1, 1) or stride > 1)
    fixed = dense and not (w.requires_grad or (bias is not None and bias.requires_grad))
    use_kernels = kernels.supported(x, w, bias) and (not dense or fixed)
    if shared and not use_kernels:
        out = _conv(x.flatten(0, 1), w, bias, ConvOptions(stride, padding, groups))
        out = out.view(*x.shape[:2], *out.shape[1:])
        return kernels.pool(out, None, 2, relu, pool) if relu or pool > 1 else out
    # Cast before expanding: casting expanded filters would copy every repetition.
    x, w = x.to(_autocast_dtype(x)), w.to(_autocast_dtype(w))
    w = w[None] if shared and dense else clients_first(w, dims[1], m)
    rows, bias = x.transpose(1, 2), None if bias is None else clients_first(bias, dims[2], m).to(x.dtype)
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
    rows = clients_first(x, dims[0], m).transpose(1, 2)
    gain, shift = (clients_first(t, dim, m).flatten() for t, dim in zip((gain, shift), dims[1:3]))
    out, mean, variance = kernels.normalise(rows.flatten(0, 1).flatten(1), gain, shift, eps, relu)
    return out.view(rows.shape).transpose(1, 2), mean.view(m, -1), variance.view(m, -1)


def _scale(x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, relu: bool) -> Tensor:
    return kernels.scale(x[None], mean[None], gain[None], shift[None], 2, relu)[0]


def _scale_stacked(
    m: int, dims: tuple[int | None, ...], x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, relu: bool
) -> Tensor:
    x, mean, gain, shift = (clients_first(t, dim, m) for t, dim in zip((x, mean, gain, shift), dims))
    if x.transpose(1, 2).is_contiguous():  # as convolutions of a stack leave it
        return kernels.scale(x.transpose(1, 2), mean, gain, shift, 1, relu).transpose(1, 2)
    return kernels.scale(x, mean, gain, shift, 2, relu)


def _pool(x: Tensor, kernel: int) -> Tensor:
    return F.max_pool2d(x, kernel)


def _pool_stacked(m: int, dims: tuple[int | None, ...], x: Tensor, kernel: int) -> Tensor:
    x = clients_first(x, dims[0], m)
    if x.transpose(1, 2).is_contiguous():  # pooling is the same in either order of the axes
        return kernels.pool(x.transpose(1, 2), None, 1, False, kernel).transpose(1, 2)
    return kernels.pool(x, None, 2, False, kernel)


def _linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, w, bias)


def _linear_stacked(m: int, dims: tuple[int | None, ...], x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    x = clients_first(x, dims[0], m)
    if dims[1] is None and (bias is None or dims[2] is None):
        return F.linear(x, w, bias)
    x, w = x.to(_autocast_dtype(x)), clients_first(w, dims[1], m)
    rows = x.reshape(m, -1, x.shape[-1])
    out = stacked_linear(rows, w, _autocast_dtype(w))
    if bias is not None:
        out = out + clients_first(bias, dims[2], m).to(out.dtype)[:, None]
    return out.reshape(*x.shape[:-1], w.shape[1])


def _drop(x: Tensor, seed: Tensor, p: float) -> Tensor:
    return kernels.reference.dropout(x[None], seed[None], p)[0]


def _drop_stacked(m: int, dims: tuple[int | None, ...], x: Tensor, seed: Tensor, p: float) -> Tensor:
    return kernels.seeded_dropout(clients_first(x, dims[0], m), clients_first(seed, dims[1], m), p)


convolution, normalisation, scaling, max_pool, linear, dropout = (
    with_vmap_rule(_conv, _conv_stacked),
    with_vmap_rule(_norm, _norm_stacked),
    with_vmap_rule(_scale, _scale_stacked),
    with_vmap_rule(_pool, _pool_stacked),
    with_vmap_rule(_linear, _linear_stacked),
    with_vmap_rule(_drop, _drop_stacked),
)


class Conv2d(nn.Conv2d):
    """Dense or depthwise, with square stride and zero padding; a following ReLU and pooling may be fused into it.

    `flat`: a flatten follows, so the output is stored row by row.
    """

    relu, pool, flat = False, 1, False

    def forward(self, h: Tensor) -> Tensor:
        options = ConvOptions(self.stride[0], int(self.padding[0]), self.groups, self.relu, self.pool, self.flat)
        return convolution(h, self.weight, self.bias, options)

    @staticmethod
    def can_replace(layer: nn.Module) -> bool:
        if type(layer) is not nn.Conv2d or isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            return False
        square = len({*layer.stride}) == len({*layer.padding}) == 1 and layer.dilation == (1, 1)
        depthwise = layer.groups == layer.in_channels == layer.out_channels
        dense = layer.groups == 1 and len({*layer.kernel_size}) == 1
        return square and layer.padding[0] < min(layer.kernel_size) and (dense or depthwise)


class BatchNorm2d(nn.BatchNorm2d):
    """With gain, shift and running statistics; a following ReLU may be fused into it."""

    relu = False

    def forward(self, h: Tensor) -> Tensor:
        if not self.training:
            gain = self.weight / (self.running_var + self.eps).sqrt()  # type: ignore[operator, union-attr]
            return scaling(h, self.running_mean, gain, self.bias, self.relu)
        out, mean, variance = normalisation(h, self.weight, self.bias, self.eps, self.relu)
        n = h.shape[0] * h.shape[2] * h.shape[3]
        running = ((self.running_mean, mean), (self.running_var, variance * (n / max(n - 1, 1))))
        for statistic, new in running:
            statistic.mul_(1 - self.momentum).add_(new.to(statistic.dtype), alpha=self.momentum)  # type: ignore[union-attr, operator]
        self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        return out

    @staticmethod
    def can_replace(layer: nn.Module) -> bool:
        return type(layer) is nn.BatchNorm2d and layer.affine and layer.track_running_stats


class BatchNorm1d(nn.BatchNorm1d):
    """Computes half-precision rows in float32: under vmap, PyTorch requires rows and statistics of the same dtype."""

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(at_least_float32(h)).to(h.dtype)

    @staticmethod
    def can_replace(layer: nn.Module) -> bool:
        return type(layer) is nn.BatchNorm1d


class MaxPool2d(nn.MaxPool2d):
    """Square windows that do not overlap."""

    def forward(self, h: Tensor) -> Tensor:
        return max_pool(h, self.kernel_size)

    @staticmethod
    def can_replace(layer: nn.Module) -> bool:
        if type(layer) is not nn.MaxPool2d or layer.return_indices or layer.ceil_mode:
            return False
        plain = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
        # The kernels store the position within a window in one byte.
        return plain and isinstance(k := layer.kernel_size, int) and layer.stride == k and k * k < 128


class MeanPool2d(nn.AdaptiveAvgPool2d):
    """Global average pooling, to one number a channel."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean((-2, -1), keepdim=True)

    @staticmethod
    def can_replace(layer: nn.Module) -> bool:
        return type(layer) is nn.AdaptiveAvgPool2d and layer.output_size in (1, (1, 1))


class Linear(nn.Linear):
    """For rows with any number of axes."""

    def forward(self, h: Tensor) -> Tensor:
        return linear(h, self.weight, self.bias)

    @staticmethod
    def can_replace(layer: nn.Module) -> bool:
        return type(layer) is nn.Linear


class Dropout(SeededDropout):
    """Seeded dropout of single elements."""

    def forward(self, h: Tensor) -> Tensor:
        return dropout(h, self.seed, self.p) if self.training and self.p else h

    @staticmethod
    def can_replace(layer: nn.Module) -> bool:
        return type(layer) is SeededDropout and not layer.drop_channels and layer.p <= MAX_DROP_RATE


def use_stacked_layers(blocks: nn.Sequential) -> nn.Sequential:
    """Replace supported layers in place by those of this file, which keep the tensors; other layers stay."""
    for layer in blocks.modules():
        for kind in (Conv2d, BatchNorm1d, BatchNorm2d, MaxPool2d, MeanPool2d, Linear, Dropout):
            if kind.can_replace(layer):
                layer.__class__ = kind
    return blocks


def _autocast_dtype(t: Tensor) -> torch.dtype:
    """The dtype that autocast would choose; it does not apply to custom autograd functions."""
    kind = t.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) and t.is_floating_point() else t.dtype
