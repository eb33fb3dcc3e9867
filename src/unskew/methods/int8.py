"""int8 (Alistarh et al. 2017): the update is quantised to 8 bits per entry with stochastic rounding.

    (1)  s_r = max_{i in r} |d_i| / 127,  d = w_k - w^t      a row r is one output unit; a tensor of one axis is one row
    (2)  q_i = floor(d_i / s_r + u_i),  u_i uniform in [0, 1)   so that E[s_r q_i] = d_i
    (3)  w_k <- w^t + s_r q_i                                on the server, before aggregation

Paper: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017.
One step size per row costs 4 bytes per row and keeps the error relative to the row: units that move little are not
rounded with the step of those that move much. Stochastic rounding adds variance but no bias, so errors average out over
clients and rounds. u_i is a hash of a seed from the plan and of the entry's index, equal on every device. Only the
update of trained tensors is rounded: a rounded running variance could turn negative, and SCAFFOLD's variates must add
up to the server's.
Differs: step sizes come from the largest entry of a row instead of the norm of a bucket (which the paper's own
experiments do too), with 127 levels on each side, and bytes are sent as they are instead of Elias-coded.
"""

import numpy as np
import torch
from torch import Tensor

from unskew.base.tree import Message, State
from unskew.models.seeded_dropout import uniform
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part, Sizes
from unskew.protocol.update_codec import CodeFormat, OutgoingUpdate

LEVELS = 127


def quantise(d: Tensor, u: Tensor) -> State:
    """The step sizes s [rows, 1, ...] in float32 and the integers q, shaped like d; u is shaped like d, in [0, 1)."""
    axes = tuple(range(1, d.ndim)) if d.ndim > 1 else tuple(range(d.ndim))
    s = (d.abs().amax(axes, keepdim=True) / LEVELS).float()  # (1)
    step = s.to(d.dtype)
    x = torch.where(step == 0, 0, d / step)  # step is 0 for a row of zeros
    # (2) without computing x + u, whose rounding could reach the next integer: 3 + u for a u near 1 would be 4.
    down = x.floor()
    q = (down + (1 - u.double() <= (x - down).double())).clamp(-LEVELS, LEVELS)
    return {"int8": q.to(torch.int8), "step": s}


def restore(code: State, like: Tensor) -> Tensor:
    """s q, in the dtype of `like`."""
    return code["step"].to(like.dtype) * code["int8"].to(like.dtype)


@part("int8")
class Int8(Part):
    """Sends the update as one-byte integers."""

    travels_as = "int8: 1 byte per entry, 4 bytes per row"

    def draws(self, when: str, sizes: Sizes, generator: np.random.Generator) -> dict:
        return {"seed": generator.integers(2**31)} if when == "seal" else {}

    def seal(self, outgoing: OutgoingUpdate) -> tuple[Message, State]:
        update = outgoing.update
        sizes = [d.numel() for d in update.values()]
        u = torch.split(uniform(outgoing.draws["seed"], sum(sizes)), sizes)
        codes = {n: quantise(d, draw.view(d.shape)) for (n, d), draw in zip(update.items(), u)}
        return outgoing.with_codes(codes), {}

    def open(self, outgoing: OutgoingUpdate) -> Message:
        return outgoing.with_update(
            {n: restore(code, outgoing.start[n]) for n, code in outgoing.codes(_code_format).items()}
        )  # (3)


def _code_format(like: Tensor) -> CodeFormat:
    rows = (len(like), *(1,) * (like.ndim - 1)) if like.ndim > 1 else (1,) * like.ndim
    return {"int8": (torch.int8, tuple(like.shape)), "step": (torch.float32, rows)}


method("fedavg-int8", "fedavg", "int8")
