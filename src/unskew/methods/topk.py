"""Top-k (Stich et al. 2018): only the largest entries of the update travel; the rest waits and is sent later.

    (1)  g_k = (w_k - w^t) + e_k            e_k: what this client did not send before, 0 at first
    (2)  c_k = the k entries of g_k of largest size, k = a fraction of them; of equals the first
    (3)  e_k <- g_k - c_k
    (4)  w_k <- w^t + c_k                   on the server, before anything is added up

Paper: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018.
Nothing is lost: over the rounds of a client, what was sent and e_k add up to all its updates. An index takes the bytes
that the size of its tensor asks for (1, 2, 4 or 8). A tensor that would not get smaller by it (k indices and values
against all values) is sent in full, so `fraction: 1` is the method without this part, to the bit. Only the update of
trained tensors is thinned out; running statistics and other parts' artefacts (SCAFFOLD's variates) travel in full.
Differs: k is taken tensor by tensor, so that no layer falls silent; the update is that of a whole local training, and
e_k of a client that is not sampled waits for its next round.
"""

import torch
from pydantic import Field
from torch import Tensor

from unskew.base.tree import Message, State, numbered
from unskew.models.model import Model
from unskew.protocol.client_view import Newcomer
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Part
from unskew.protocol.update_codec import Form, OutgoingUpdate

INDEX = {torch.uint8: 2**8, torch.uint16: 2**16, torch.int32: 2**31, torch.int64: 2**63}  # type -> places it can name


def largest(g: Tensor, k: int) -> Tensor:
    """Places of the k entries of g [n] of largest size, in order; of equals the first, wherever it is computed."""
    size = g.abs().nan_to_num(nan=torch.inf)  # what is not a number must be sent, so that the message is refused
    least = size.topk(k).values[-1]
    above, equal = size > least, size == least
    keep = above | (equal & (equal.cumsum(0) <= k - above.sum()))
    slot = torch.where(keep, keep.cumsum(0) - 1, k)  # slot k takes what is not kept
    return slot.new_zeros(k + 1).scatter(0, slot, numbered(len(g), g))[:k]


def index_type(n: int) -> torch.dtype:
    """The smallest type that can name n places."""
    return next(dtype for dtype, places in INDEX.items() if n <= places)


@part("topk")
class TopK(Part):
    """The largest entries of the update, with a memory of the others."""

    fraction: float = Field(0.1, gt=0, le=1, description="of the entries of each tensor, those sent; own choice")

    neutral = {"fraction": 1.0}
    travels_as = "top-k: of a fraction of the entries the value and an index of 1, 2, 4 or 8 bytes"

    def client_init(self, model: Model, client: Newcomer) -> State:
        tensors = {name: model.initial[name] for name in model.shared}
        return {name: torch.zeros_like(t) for name, t in tensors.items() if self._form(t)}

    def seal(self, outgoing: OutgoingUpdate) -> tuple[Message, State]:
        codes, rest = {}, {}
        for name, d in outgoing.update.items():
            if form := self._form(d):
                g = (d + outgoing.part_state[name]).flatten()  # (1)
                at = largest(g, self._count(d))  # (2)
                codes[name] = {"at": at.to(form["at"][0]), "values": g[at]}
                rest[name] = g.scatter(0, at, 0).view(d.shape)  # (3)
        return outgoing.with_codes(codes), rest

    def open(self, outgoing: OutgoingUpdate) -> Message:
        update, fine = {}, {}
        for name, code in outgoing.codes(self._form).items():
            like, at = outgoing.start[name], code["at"].long()
            fine[name] = (at[0] >= 0) & (at[-1] < like.numel()) & (at.diff() > 0).all()
            places = at.clamp(0, like.numel() - 1)  # the answer is asked for once, below
            update[name] = like.new_zeros(like.numel()).scatter(0, places, code["values"]).view(like.shape)  # (4)
        outgoing.refuse_unless(fine, "indices within the tensor, each larger than the one before")
        return outgoing.with_update(update)

    def _count(self, like: Tensor) -> int:
        return max(1, round(self.fraction * like.numel()))

    def _form(self, like: Tensor) -> Form:
        k, index = self._count(like), index_type(like.numel())
        smaller = k * (like.element_size() + index.itemsize) < like.numel() * like.element_size()
        return {"at": (index, (k,)), "values": (like.dtype, (k,))} if smaller else {}


method("fedavg-topk", "fedavg", "topk")
