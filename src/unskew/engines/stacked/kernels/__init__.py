"""Functions of a whole cohort: kernels of our own on a GPU, plain PyTorch elsewhere."""

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
FILTER = 15  # largest side of a filter, and padding: the kernels keep a bit for each line and column in 32
NUMBERS = 2**31  # of a client's rows before or after a convolution: the kernels count them in 32 bits
FEW, LARGE = 64, 2**16  # rows of a client up to which, and weights from which a product waits for the weights alone
LAUNCH = 2**20  # bytes to write at which a launch of ours, longer for the host than PyTorch's, begins to pay
PLANE = 2**16  # numbers of a plane that one program pools: more take minutes to compile, and 2^20 are all Triton takes
IMAGE = 2**24  # numbers that a row may span when it is picked: a GPU counts 2^16 blocks of 512 of them, less one


def available(device: torch.device) -> bool:
    """Whether kernels can run on a device."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None and builds(device)


@functools.cache
def builds(device: torch.device) -> bool:
    """Whether Triton finds what it needs, such as a C compiler; otherwise a warning, and PyTorch's own functions."""
    from unskew.engines.stacked.kernels.sum_messages import add_up

    one = torch.ones(1, device=device)
    try:
        add_up([one.double()], [StackedMessages([one], [0], [1.0])])
    except Exception as error:  # whatever it lacks, the run can go on without kernels
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        warnings.warn(f"Triton builds no kernels here, so steps will be slower: {reason}", stacklevel=2)
        return False
    return True


@functools.cache
def has_tf32() -> bool:
    """Whether the matrix units take TF32, of which a float32 is the sum of two: NVIDIA's, from Ampere on."""
    there = torch.cuda.is_available()
    return torch.version.hip is None and (not there or torch.cuda.get_device_capability() >= (8, 0))


def supported(x: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernels can take these tensors; float64 is for checking, not for speed.

    A method that maps or differentiates within its loss hands over wrapped tensors, for which kernels have no rules.
    """
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if any(t is not None and wrapped(t) for t in (x, *others)):
        return False
    return x.dtype in HALF_AND_SINGLE and available(x.device)


def message_adder(device: torch.device) -> AddUp | None:
    """What adds up a cohort's messages at once; None where they are added one by one."""
    if not available(device):
        return None
    from unskew.engines.stacked.kernels.sum_messages import add_up

    return add_up


def sgd_kernel(device: torch.device) -> Callable[..., None] | None:
    """What moves a cohort's leaves in place of torch's `sgd`; None where that does."""
    if not available(device):
        return None
    from unskew.engines.stacked.kernels.sgd import descend

    return descend


def broadcast_to_clients(places: list[Tensor], values: list[Tensor]) -> None:
    """Each place [m, ...] becomes its value [...], in each of its m rows; or its value [m, ...], as `copy_` has it."""
    for place, value in zip(places, values, strict=True):
        same = (place.dtype, place.device, place.shape[1:]) == (value.dtype, value.device, value.shape)
        known = place.dtype in (*HALF_AND_SINGLE, torch.int64) and place.is_contiguous()
        if not same or not known or place.nbytes < LAUNCH or not available(place.device):
            place.copy_(value)
            continue
        from unskew.engines.stacked.kernels.broadcast import write

        write(place, value)


def matmul(rows: Tensor, weights: Tensor) -> Tensor:
    """rows [m, b, i] @ weights [m, o, i]^T to [m, b, o], by our own kernel where it is faster."""
    single = rows.dtype == weights.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    reads = rows.shape[1] <= FEW and LARGE <= weights[0].numel() < NUMBERS
    if not (single and reads and has_tf32() and supported(rows, weights)):
        return torch.bmm(rows, weights.mT)
    from unskew.engines.stacked.kernels.matmul_fp32 import product

    return product(rows.contiguous(), weights.contiguous())


def convolve(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: int, padding: int, relu: bool, k: int, turned: bool
) -> Tensor:
    """x [m, c, b, h, w] with filters w [m, o, c, kh, kw] of each client to [m, o, b, h', w'], then as `pool`.

    Filters of a leading axis of 1 are all clients', and learn nothing.
    """
    m, o, b, sides = len(x), w.shape[1], x.shape[2], w.shape[3:]
    padded = b * (x.shape[3] + 2 * padding) * (x.shape[4] + 2 * padding)
    counted = max(*sides, padding) <= FILTER and max(x.shape[1], o) * padded < NUMBERS
    if sides == (1, 1) and stride == 1 and padding == 0:
        out = torch.bmm(w.view(m, o, -1), x.reshape(m, x.shape[1], -1)).view(m, o, b, *x.shape[3:])
    elif not supported(x, w, bias) or sides[0] != sides[1] or not counted:
        out = reference.convolve(x, w.expand(m, *w.shape[1:]), stride, padding)
    else:
        from unskew.engines.stacked.kernels.conv_autograd import ConvFunction

        places = [(n + 2 * padding - sides[0]) // stride + 1 for n in x.shape[3:]]
        windows = k == 1 or (k == 2 and not any(n % 2 for n in places))
        if windows and math.prod(places) <= PLANE:
            out = ConvFunction.apply(x, w, bias, stride, padding, relu, k, turned)
            return out.transpose(1, 2) if turned else out
        out = ConvFunction.apply(x, w, None, stride, padding, False, 1, False)
    return pool(out, bias, 1, relu, k, turned) if bias is not None or relu or k > 1 else out


def depthwise(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """Planes x [r, b, h, w] with one filter w [r, kh, kw] each."""
    if not supported(x, w):
        return reference.depthwise(x, w, stride, padding)
    from unskew.engines.stacked.kernels.depthwise_conv import DepthwiseFunction

    return DepthwiseFunction.apply(x, w, stride, padding)


def pool(x: Tensor, bias: Tensor | None, channel: int, relu: bool, k: int, turned: bool = False) -> Tensor:
    """Bias [m, c], ReLU, and the largest of every k x k window of x [m, c, b, h, w] or [m, b, c, h, w].

    With `turned` a kernel leaves the planes in memory as the other of the two.
    """
    if not supported(x, bias) or x.shape[3:].numel() > PLANE:
        return reference.pool(x, bias, channel, relu, k)
    from unskew.engines.stacked.kernels.pooling import PoolFunction

    out = PoolFunction.apply(x, bias, channel, relu, k, turned)
    return out.transpose(1, 2) if turned else out


def normalise(x: Tensor, gain: Tensor, shift: Tensor, eps: float, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Rows x [r, n] to mean 0 and variance 1, gain and shift [r], ReLU; also their means and variances."""
    if not supported(x, gain, shift):
        return reference.normalise(x, gain, shift, eps, relu)
    from unskew.engines.stacked.kernels.batchnorm_train import BatchNormFunction

    return BatchNormFunction.apply(x, gain, shift, eps, relu)


def scale(x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, channel: int, relu: bool) -> Tensor:
    """(x - mean) gain + shift, ReLU, of x [m, c, b, h, w] or [m, b, c, h, w] and [m, c]."""
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (x, mean, gain, shift))
    if learns or not supported(x, mean, gain, shift):
        return reference.scale(x, mean, gain, shift, channel, relu)
    from unskew.engines.stacked.kernels.batchnorm_eval import scaled

    return scaled(x, mean, gain, shift, channel, relu)


def seeded_dropout(x: Tensor, seeds: Tensor, p: float) -> Tensor:
    """x [m, ...] without the numbers that a hash of each client's seed and of their place falls below p for."""
    if not supported(x, seeds):
        return reference.drop(x, seeds, p)
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
    """Rows `index` [n] of x [N, ...] as model inputs, augmented where there are draws [n, ...]."""
    span = sum((size - 1) * step for size, step in zip(x.shape[1:], x.stride()[1:]))
    images = x.ndim == 4 and x.dtype in (torch.uint8, torch.float32) and span < IMAGE and available(x.device)
    if not (images and isinstance(prepare, InputScaling) and prepare.dtype == dtype and dtype in HALF_AND_SINGLE):
        return client_rows.gather_rows(x, index, augment, draw, prepare, dtype)
    from unskew.engines.stacked.kernels.gather_augment import pick

    return pick(x, index, augment, draw, prepare)
