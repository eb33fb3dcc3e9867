"""bf16 (Kalamkar et al. 2019): the update travels in half the bytes.

    (1)  c_k = bf16(w_k - w^t)        eight bits of mantissa, to the nearest, ties to even
    (2)  w_k <- w^t + c_k             on the server, before anything is added up

Paper: Kalamkar, Mudigere, Mellempudi, Das, Banerjee, Avancha, and others, "A Study of BFLOAT16 for Deep Learning
Training", arXiv 1905.12322, 2019.
Every entry is off by at most one part in 256 of itself, so the error shrinks with the update; rounding the model itself
would lose small updates whole. bf16 has the range of float32: nothing is scaled. Only the update of trained tensors is
rounded; running statistics and other parts' artefacts (SCAFFOLD's variates, FedCurv's sums) travel in full.
Differs: the paper trains in bf16; here it is how the update travels, and training keeps its own precision.
"""

import torch
from torch import Tensor

from unskew.base.bitcast import bits
from unskew.base.tree import Message, State
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.update_codec import Form, OutgoingUpdate


@part("bf16")
class Bfloat16(Part):
    """The update in bf16."""

    travels_as = "bf16: 2 bytes an entry"

    def seal(self, outgoing: OutgoingUpdate) -> tuple[Message, State]:
        # The bits as int16, a type that every serialiser has.
        rounded = {n: d.to(torch.bfloat16) for n, d in outgoing.update.items()}  # (1)
        codes = {n: {"bf16": bits(d, torch.int16)} for n, d in rounded.items()}
        return outgoing.with_codes(codes), {}

    def open(self, outgoing: OutgoingUpdate) -> Message:
        codes = outgoing.codes(_form)
        return outgoing.with_update(
            {n: code["bf16"].view(torch.bfloat16).to(outgoing.start[n].dtype) for n, code in codes.items()}  # (2)
        )


def _form(like: Tensor) -> Form:
    return {"bf16": (torch.int16, tuple(like.shape))}


method("fedavg-bf16", "fedavg", "bf16")
