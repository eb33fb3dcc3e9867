"""Top-k (Stich et al. 2018): send only the largest entries of the update; keep the rest as an error memory for later.

    (1)  g_k = (w_k - w^t) + e_k            e_k: the client's entries not sent so far, 0 at first
    (2)  c_k = the k entries of g_k of largest absolute value, k = a fraction of them; ties: lowest index first
    (3)  e_k <- g_k - c_k
    (4)  w_k <- w^t + c_k                   on the server, before aggregation

Paper: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018.
No update is lost: over a client's rounds, the sent entries and e_k add up to all its updates. An index takes 1, 2, 4 or
8 bytes, depending on the size of its tensor. A tensor for which k indices and values need no fewer bytes than all
values is sent in full, so `fraction: 1` is the method without this part, bit for bit. Only the update of trained
tensors is sparsified; running statistics and other parts' artefacts (SCAFFOLD's variates) are sent in full.
Differs: k is per tensor, so that every layer sends something; the update is that of a full local training, and a client
that is not sampled keeps its e_k until its next round.
"""

import torch
from pydantic import Field
from torch import Tensor

from unskew.base.tree import Message, State, arange_like
from unskew.models.model import Model
from unskew.protocol.client_view import Newcomer
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.update_codec import CodeFormat, OutgoingUpdate

INDEX_LIMITS = {torch.uint8: 2**8, torch.uint16: 2**16, torch.int32: 2**31, torch.int64: 2**63}  # dtype -> largest n


def largest(g: Tensor, k: int) -> Tensor:
    """Sorted indices of the k largest |g| of g [n]. Ties: lowest index first, on every device, unlike torch.topk."""
    size = g.abs().nan_to_num(nan=torch.inf)  # a NaN must be sent, so that the server refuses the message
    smallest = size.topk(k).values[-1]
    above, equal = size > smallest, size == smallest
    keep = above | (equal & (equal.cumsum(0) <= k - above.sum()))
    slot = torch.where(keep, keep.cumsum(0) - 1, k)  # slot k collects all entries that are not kept
    return slot.new_zeros(k + 1).scatter(0, slot, arange_like(len(g), g))[:k]


def index_type(n: int) -> torch.dtype:
    """The smallest dtype that can index n entries."""
    return next(dtype for dtype, limit in INDEX_LIMITS.items() if n <= limit)


@part("topk")
class TopK(Part):
    """Sends the largest entries of the update and remembers the others."""

    fraction: float = Field(0.1, gt=0, le=1, description="share of each tensor's entries that is sent; own choice")

    neutral = {"fraction": 1.0}
    travels_as = "top-k: for a fraction of the entries, the value and an index of 1, 2, 4 or 8 bytes"

    def client_init(self, model: Model, client: Newcomer) -> State:
        tensors = {name: model.initial[name] for name in model.shared}
        return {name: torch.zeros_like(t) for name, t in tensors.items() if self._code_format(t)}

    def seal(self, outgoing: OutgoingUpdate) -> tuple[Message, State]:
        codes, rest = {}, {}
        for name, d in outgoing.update.items():
            if form := self._code_format(d):
                g = (d + outgoing.part_state[name]).flatten()  # (1)
                at = largest(g, self._count(d))  # (2)
                codes[name] = {"at": at.to(form["at"][0]), "values": g[at]}
                rest[name] = g.scatter(0, at, 0).view(d.shape)  # (3)
        return outgoing.with_codes(codes), rest

    def open(self, outgoing: OutgoingUpdate) -> Message:
        update, valid = {}, {}
        for name, code in outgoing.codes(self._code_format).items():
            like, at = outgoing.start[name], code["at"].long()
            valid[name] = (at[0] >= 0) & (at[-1] < like.numel()) & (at.diff() > 0).all()
            index = at.clamp(0, like.numel() - 1)  # `valid` is read from the device only once, below
            update[name] = like.new_zeros(like.numel()).scatter(0, index, code["values"]).view(like.shape)  # (4)
        outgoing.refuse_unless(valid, "indices within the tensor, each larger than the one before")
        return outgoing.with_update(update)

    def _count(self, like: Tensor) -> int:
        return max(1, round(self.fraction * like.numel()))

    def _code_format(self, like: Tensor) -> CodeFormat:
        k, index = self._count(like), index_type(like.numel())
        smaller = k * (like.element_size() + index.itemsize) < like.numel() * like.element_size()
        return {"at": (index, (k,)), "values": (like.dtype, (k,))} if smaller else {}


method("fedavg-topk", "fedavg", "topk")
