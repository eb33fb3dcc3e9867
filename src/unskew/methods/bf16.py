"""bf16 (Kalamkar et al. 2019): the update is sent in half the bytes.

    (1)  c_k = bf16(w_k - w^t)        eight bits of mantissa, to the nearest, ties to even
    (2)  w_k <- w^t + c_k             on the server, before aggregation

Paper: Kalamkar, Mudigere, Mellempudi, Das, Banerjee, Avancha, and others, "A Study of BFLOAT16 for Deep Learning
Training", arXiv 1905.12322, 2019.
Every entry has a relative error of at most 1/256, so the error shrinks with the update; rounding the model itself would
lose small updates entirely. bf16 has the range of float32, so no scaling is needed. Only the update of trained tensors
is rounded; running statistics and other parts' artefacts (SCAFFOLD's variates, FedCurv's sums) are sent in full.
Differs: the paper trains in bf16; here only the update is sent in bf16, and training keeps its own precision.
"""

import torch
from torch import Tensor

from unskew.base.bitcast import bitcast
from unskew.base.tree import Message, State
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.update_codec import CodeFormat, OutgoingUpdate


@part("bf16")
class Bfloat16(Part):
    """Sends the update in bf16."""

    travels_as = "bf16: 2 bytes per entry"

    def seal(self, outgoing: OutgoingUpdate) -> tuple[Message, State]:
        # Reinterpreted as int16, a dtype that every serialiser supports.
        rounded = {n: d.to(torch.bfloat16) for n, d in outgoing.update.items()}  # (1)
        codes = {n: {"bf16": bitcast(d, torch.int16)} for n, d in rounded.items()}
        return outgoing.with_codes(codes), {}

    def open(self, outgoing: OutgoingUpdate) -> Message:
        codes = outgoing.codes(_code_format)
        return outgoing.with_update(
            {n: code["bf16"].view(torch.bfloat16).to(outgoing.start[n].dtype) for n, code in codes.items()}  # (2)
        )


def _code_format(like: Tensor) -> CodeFormat:
    return {"bf16": (torch.int16, tuple(like.shape))}


method("fedavg-bf16", "fedavg", "bf16")
