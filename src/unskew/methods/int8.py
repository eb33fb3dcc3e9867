"""int8 (Alistarh et al. 2017): the update travels as whole numbers of a step, rounded up or down by chance.

    (1)  s_r = max_{i in r} |d_i| / 127,  d = w_k - w^t      a row r is one output unit; a tensor of one axis is one row
    (2)  q_i = floor(d_i / s_r + u_i),  u_i uniform in [0, 1)   so that E[s_r q_i] = d_i
    (3)  w_k <- w^t + s_r q_i                                on the server, before anything is added up

Paper: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017.
A step for each row costs 4 bytes a row and makes the error that of the row: units that move little are not rounded by
the step of those that move much. Rounding by chance costs variance and no bias, so the errors of clients and rounds
cancel. u_i is a hash of the plan's seed and the place of the entry, the same anywhere; only the update of trained
tensors is rounded: a rounded running variance could turn negative, and SCAFFOLD's variates must add up to the server's.
Differs: steps from the largest entry of a row instead of the norm of a bucket (which the paper's own experiments do
too), 127 levels a side, and bytes as they are instead of Elias codes.
"""

import numpy as np
import torch
from torch import Tensor

from unskew.base.tree import Message, State
from unskew.models.seeded_dropout import uniform
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part, Sizes
from unskew.protocol.update_codec import Form, OutgoingUpdate

LEVELS = 127


def quantise(d: Tensor, u: Tensor) -> State:
    """The steps s [rows, 1, ...] in float32 and whole numbers q like d; u [...] like d, in [0, 1)."""
    axes = tuple(range(1, d.ndim)) if d.ndim > 1 else tuple(range(d.ndim))
    s = (d.abs().amax(axes, keepdim=True) / LEVELS).float()  # (1)
    step = s.to(d.dtype)
    x = torch.where(step == 0, 0, d / step)  # a row that did not move has no step
    # (2) without the sum, which rounds: 3 + u for a u near 1 would be 4.
    down = x.floor()
    q = (down + (1 - u.double() <= (x - down).double())).clamp(-LEVELS, LEVELS)
    return {"int8": q.to(torch.int8), "step": s}


def restore(code: State, like: Tensor) -> Tensor:
    """s q, in the type of `like`."""
    return code["step"].to(like.dtype) * code["int8"].to(like.dtype)


@part("int8")
class Int8(Part):
    """The update in whole numbers of one byte."""

    travels_as = "int8: 1 byte an entry, 4 bytes a row"

    def draws(self, when: str, sizes: Sizes, generator: np.random.Generator) -> dict:
        return {"seed": generator.integers(2**31)} if when == "seal" else {}

    def seal(self, outgoing: OutgoingUpdate) -> tuple[Message, State]:
        update = outgoing.update
        sizes = [d.numel() for d in update.values()]
        u = torch.split(uniform(outgoing.draws["seed"], sum(sizes)), sizes)
        codes = {n: quantise(d, mine.view(d.shape)) for (n, d), mine in zip(update.items(), u)}
        return outgoing.with_codes(codes), {}

    def open(self, outgoing: OutgoingUpdate) -> Message:
        return outgoing.with_update(
            {n: restore(code, outgoing.start[n]) for n, code in outgoing.codes(_form).items()}
        )  # (3)


def _form(like: Tensor) -> Form:
    rows = (len(like), *(1,) * (like.ndim - 1)) if like.ndim > 1 else (1,) * like.ndim
    return {"int8": (torch.int8, tuple(like.shape)), "step": (torch.float32, rows)}


method("fedavg-int8", "fedavg", "int8")
