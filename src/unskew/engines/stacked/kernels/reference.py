"""The kernels' functions in plain PyTorch: for the CPU, for float64, and without Triton."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.models.seeded_dropout import keep_mask
from unskew.protocol.step_view import at_least_float32


def convolve(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """x [m, c, b, h, w] with filters w [m, o, c, kh, kw] of each client to [m, o, b, h', w']."""
    m, o, b = len(x), w.shape[1], x.shape[2]
    rows = x.permute(2, 0, 1, 3, 4).flatten(1, 2)
    out = F.conv2d(rows, w.flatten(0, 1), None, stride, padding, groups=m)
    return out.view(b, m, o, *out.shape[2:]).permute(1, 2, 0, 3, 4)


def depthwise(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """Depthwise convolution of planes x [r, b, h, w] with a filter w [r, kh, kw] for each r."""
    return F.conv2d(x.transpose(0, 1), w[:, None], None, stride, padding, groups=len(x)).transpose(0, 1)


def pool(x: Tensor, bias: Tensor | None, channel: int, relu: bool, k: int) -> Tensor:
    """Bias [m, c], ReLU and k x k max pooling of x [m, c, b, h, w] or [m, b, c, h, w]; `channel` is the axis of c."""
    if bias is not None:
        x = x + bias.unsqueeze(3 - channel)[..., None, None]
    x = x.relu() if relu else x
    return x if k == 1 else F.max_pool2d(x.flatten(0, 1), k).unflatten(0, x.shape[:2])


def normalise(x: Tensor, gain: Tensor, shift: Tensor, eps: float, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise rows x [r, n], then gain and shift [r] and ReLU; also returns the rows' means and variances."""
    out = F.batch_norm(x[None], None, None, gain, shift, True, 0.0, eps)[0]
    variance, mean = torch.var_mean(at_least_float32(x.detach()), 1, correction=0)
    return out.relu() if relu else out, mean, variance


def scale(x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, channel: int, relu: bool) -> Tensor:
    """(x - mean) gain + shift, ReLU, of x [m, c, b, h, w] or [m, b, c, h, w] and [m, c]."""
    mean, gain, shift = (t.unsqueeze(3 - channel)[..., None, None] for t in (mean, gain, shift))
    # Centre first: the gain's gradient needs the centred rows. Statistics are never in half precision.
    out = ((x - mean) * gain + shift).to(x.dtype)
    return out.relu() if relu else out


def dropout(x: Tensor, seeds: Tensor, p: float) -> Tensor:
    """Dropout of x [m, ...]; the mask is a hash of the client's seed and the position, compared with p."""
    keep = torch.stack([keep_mask(seed, x[0].numel(), p) for seed in seeds]).view(x.shape)
    return torch.where(keep, x / (1 - p), 0.0)
