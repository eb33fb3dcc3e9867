"""Functions on a cohort's stacked tensors: Triton kernels on a GPU, otherwise plain PyTorch (reference.py)."""

from __future__ import annotations

import functools
import importlib.util
import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from unskew.client import client_rows
from unskew.data.augment import Augment
from unskew.data.dataset import InputScaling
from unskew.engines.engine import AddUp, StackedMessages
from unskew.engines.stacked.kernels import reference

HALF_AND_SINGLE = (torch.float32, torch.bfloat16, torch.float16)
MAX_FILTER_SIDE = 15  # also of the padding: the kernels use one bit for each line and column, of 32 bits in all
MAX_NUMBERS = 2**31  # of a client's rows before or after a convolution: the kernels index them with 32 bits
# With at most this many rows and at least this many weights, a matmul is bound by reading the weights.
MEMORY_BOUND_ROWS, MEMORY_BOUND_WEIGHTS = 64, 2**16
MIN_LAUNCH_BYTES = 2**20  # a Triton launch costs the host more than PyTorch's, and pays off only for larger writes
MAX_PLANE = 2**16  # numbers of a plane that one program pools: more take minutes to compile, and Triton's limit is 2^20
MAX_IMAGE = 2**24  # numbers that a gathered row may span: a GPU's grid allows 2^16 - 1 blocks of 512


def available(device: torch.device) -> bool:
    """Whether kernels can run on a device."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None and triton_works(device)


@functools.cache
def triton_works(device: torch.device) -> bool:
    """Whether Triton can compile (it needs a C compiler, for example); otherwise warn and use PyTorch's functions."""
    from unskew.engines.stacked.kernels.sum_messages import add_up

    one = torch.ones(1, device=device)
    try:
        add_up([one.double()], [StackedMessages([one], [0], [1.0])])
    except Exception as error:  # whatever the cause, the run can continue without kernels
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        warnings.warn(f"Triton cannot compile kernels; training continues without them, slower: {reason}", stacklevel=2)
        return False
    return True


@functools.cache
def has_tf32() -> bool:
    """Whether the tensor cores support TF32 (NVIDIA from Ampere on); float32 is multiplied as a sum of two TF32."""
    cuda = torch.cuda.is_available()
    return torch.version.hip is None and (not cuda or torch.cuda.get_device_capability() >= (8, 0))


def supported(x: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernels support these tensors; float64 is for checks, not for speed.

    If a method uses `vmap` or `grad` inside its loss, tensors are wrapped, and the kernels have no rules for that.
    """
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if any(t is not None and wrapped(t) for t in (x, *others)):
        return False
    return x.dtype in HALF_AND_SINGLE and available(x.device)


def message_adder(device: torch.device) -> AddUp | None:
    """The kernel that adds up a cohort's messages at once; None if they must be added one by one."""
    if not available(device):
        return None
    from unskew.engines.stacked.kernels.sum_messages import add_up

    return add_up


def sgd_kernel(device: torch.device) -> Callable[..., None] | None:
    """The SGD step with kernels, to use in place of torch's `sgd`; None without kernels."""
    if not available(device):
        return None
    from unskew.engines.stacked.kernels.sgd import sgd_update

    return sgd_update


def broadcast_to_clients(destinations: list[Tensor], values: list[Tensor]) -> None:
    """Write each value [...] to all m rows of its destination [m, ...]; like `copy_`, which also takes [m, ...]."""
    for target, value in zip(destinations, values, strict=True):
        same = (target.dtype, target.device, target.shape[1:]) == (value.dtype, value.device, value.shape)
        suited = target.dtype in (*HALF_AND_SINGLE, torch.int64) and target.is_contiguous()
        if not same or not suited or target.nbytes < MIN_LAUNCH_BYTES or not available(target.device):
            target.copy_(value)
            continue
        from unskew.engines.stacked.kernels.broadcast import broadcast_tensor

        broadcast_tensor(target, value)


def matmul(rows: Tensor, weights: Tensor) -> Tensor:
    """rows [m, b, i] @ weights [m, o, i]^T to [m, b, o], with the kernel where it is faster."""
    exact_fp32 = rows.dtype == weights.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    memory_bound = rows.shape[1] <= MEMORY_BOUND_ROWS and MEMORY_BOUND_WEIGHTS <= weights[0].numel() < MAX_NUMBERS
    if not (exact_fp32 and memory_bound and has_tf32() and supported(rows, weights)):
        return torch.bmm(rows, weights.mT)
    from unskew.engines.stacked.kernels.matmul_fp32 import matmul_fp32

    return matmul_fp32(rows.contiguous(), weights.contiguous())


def convolve(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: int, padding: int, relu: bool, k: int, flat: bool
) -> Tensor:
    """x [m, c, b, h, w] with filters w [m, o, c, kh, kw] of each client to [m, o, b, h', w'], then as `pool`.

    Filters with a leading axis of 1 are shared by all clients and get no gradient; `flat` stores the output row by row.
    """
    m, o, b, sides = len(x), w.shape[1], x.shape[2], w.shape[3:]
    padded_numbers = b * (x.shape[3] + 2 * padding) * (x.shape[4] + 2 * padding)
    within_limits = max(*sides, padding) <= MAX_FILTER_SIDE and max(x.shape[1], o) * padded_numbers < MAX_NUMBERS
    if sides == (1, 1) and stride == 1 and padding == 0:
        out = torch.bmm(w.view(m, o, -1), x.reshape(m, x.shape[1], -1)).view(m, o, b, *x.shape[3:])
    elif not supported(x, w, bias) or sides[0] != sides[1] or not within_limits:
        out = reference.convolve(x, w.expand(m, *w.shape[1:]), stride, padding)
    else:
        from unskew.engines.stacked.kernels.conv_autograd import ConvFunction

        out_sides = [(n + 2 * padding - sides[0]) // stride + 1 for n in x.shape[3:]]
        fusible = k == 1 or (k == 2 and not any(n % 2 for n in out_sides))
        if fusible and math.prod(out_sides) <= MAX_PLANE:
            out = ConvFunction.apply(x, w, bias, stride, padding, relu, k, flat)
            return out.transpose(1, 2) if flat else out
        out = ConvFunction.apply(x, w, None, stride, padding, False, 1, False)
    return pool(out, bias, 1, relu, k, flat) if bias is not None or relu or k > 1 else out


def depthwise(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """Depthwise convolution of planes x [r, b, h, w] with a filter w [r, kh, kw] for each r."""
    if not supported(x, w):
        return reference.depthwise(x, w, stride, padding)
    from unskew.engines.stacked.kernels.depthwise_conv import DepthwiseFunction

    return DepthwiseFunction.apply(x, w, stride, padding)


def pool(x: Tensor, bias: Tensor | None, channel: int, relu: bool, k: int, swap_axes: bool = False) -> Tensor:
    """Bias [m, c], ReLU and k x k max pooling of x [m, c, b, h, w] or [m, b, c, h, w]; `channel` is the axis of c.

    With `swap_axes` the kernel stores the output in the other of the two memory orders.
    """
    if not supported(x, bias) or x.shape[3:].numel() > MAX_PLANE:
        return reference.pool(x, bias, channel, relu, k)
    from unskew.engines.stacked.kernels.pooling import PoolFunction

    out = PoolFunction.apply(x, bias, channel, relu, k, swap_axes)
    return out.transpose(1, 2) if swap_axes else out


def normalise(x: Tensor, gain: Tensor, shift: Tensor, eps: float, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise rows x [r, n], then gain and shift [r] and ReLU; also returns the rows' means and variances."""
    if not supported(x, gain, shift):
        return reference.normalise(x, gain, shift, eps, relu)
    from unskew.engines.stacked.kernels.batchnorm_train import BatchNormFunction

    return BatchNormFunction.apply(x, gain, shift, eps, relu)


def scale(x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, channel: int, relu: bool) -> Tensor:
    """(x - mean) gain + shift, ReLU, of x [m, c, b, h, w] or [m, b, c, h, w] and [m, c]."""
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (x, mean, gain, shift))
    if needs_grad or not supported(x, mean, gain, shift):
        return reference.scale(x, mean, gain, shift, channel, relu)
    from unskew.engines.stacked.kernels.batchnorm_eval import batchnorm_eval

    return batchnorm_eval(x, mean, gain, shift, channel, relu)


def seeded_dropout(x: Tensor, seeds: Tensor, p: float) -> Tensor:
    """Dropout of x [m, ...]; the mask is a hash of the client's seed and the position, compared with p."""
    if not supported(x, seeds):
        return reference.dropout(x, seeds, p)
    from unskew.engines.stacked.kernels.dropout import DropoutFunction

    return DropoutFunction.apply(x, seeds, p)


def gather_rows(
    x: Tensor,
    index: Tensor,
    augment: Augment,
    draw: dict[str, Tensor],
    prepare: Callable[[Tensor], Tensor],
    dtype: torch.dtype,
) -> Tensor:
    """Rows `index` [n] of x [N, ...] as model inputs, augmented if there are draws [n, ...]."""
    span = sum((size - 1) * step for size, step in zip(x.shape[1:], x.stride()[1:]))
    is_image = x.ndim == 4 and x.dtype in (torch.uint8, torch.float32) and span < MAX_IMAGE and available(x.device)
    if not (is_image and isinstance(prepare, InputScaling) and prepare.dtype == dtype and dtype in HALF_AND_SINGLE):
        return client_rows.gather_rows(x, index, augment, draw, prepare, dtype)
    from unskew.engines.stacked.kernels.gather_augment import gather_and_augment

    return gather_and_augment(x, index, augment, draw, prepare)
