"""The messages of a cohort added up in one pass over them and one launch.

50 messages of 6 MB one by one were 100 launches and 2.2 ms; one launch for each of 287 tensors, 20 ms of the host.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.client.client_rows import to_device_async
from unskew.engines.engine import StackedMessages

BLOCK = 1024  # numbers of a program


@triton.jit
def _add_up(totals, sizes, places, tensor_of, begin, factors, M, total, like, BN: tl.constexpr):
    """total[n] += factors[0] * message_0[n], then message 1, and so on: the order of the clients, in float64."""
    block = tl.program_id(0)
    tensor = tl.load(tensor_of + block)
    at = tl.load(begin + block) + tl.arange(0, BN)
    there = at < tl.load(sizes + tensor)
    to = tl.load(totals + tensor).to(total.dtype)
    sums = tl.load(to + at, mask=there, other=0.0)
    for i in range(M):
        message = tl.load(places + tensor * M + i).to(like.dtype)
        sums += tl.load(factors + i) * tl.load(message + at, mask=there, other=0.0).to(tl.float64)
    tl.store(to + at, sums, mask=there)


def add_up(totals: list[Tensor], messages: list[StackedMessages]) -> None:
    """Add factor * message to the totals, message after message.

    Number of rows times a float32 is exact in float64, so it is the same whether a product is rounded or not.
    """
    device = totals[0].device
    # Asked first: a copy that is none takes the host three times as long.
    whole = [
        some._replace(tensors=[t if t.is_contiguous() and t.device == device else t.to(device).contiguous()
                               for t in some.tensors])
        for some in messages
    ]  # fmt: skip
    factors = [factor for some in whole for factor in some.factors]
    weights = to_device_async(torch.tensor(factors, dtype=torch.float64), device)
    kinds: dict[torch.dtype, list[int]] = {}
    for i, t in enumerate(whole[0].tensors):
        kinds.setdefault(t.dtype, []).append(i)
    for mine in kinds.values():
        some = [each._replace(tensors=[each.tensors[i] for i in mine]) for each in whole]
        blocks, table = _table([totals[i] for i in mine], some)
        if blocks:
            _add_up[(blocks,)](*table, weights, len(factors), totals[mine[0]], some[0].tensors[0], BLOCK)


def _table(totals: list[Tensor], messages: list[StackedMessages]) -> tuple[int, list[Tensor]]:
    """How many programs there are; where each total begins, its size, where each of its messages begins, and which
    tensor a program works on from where: all made on the host and to_device_async at once."""
    sizes = np.array([t.numel() for t in totals])
    counts = -(-sizes // BLOCK)
    first = np.cumsum(counts) - counts
    columns = [
        np.array([t.data_ptr() for t in totals]),
        sizes,
        np.concatenate([_rows(some) for some in messages], 1).reshape(-1),
        np.repeat(np.arange(len(totals)), counts),
        (np.arange(counts.sum()) - np.repeat(first, counts)) * BLOCK,
    ]
    # Columns of even length all begin at multiples of 16 bytes, so that one compiled kernel fits all.
    columns = [np.pad(column, (0, len(column) % 2)) for column in columns]
    there = to_device_async(torch.from_numpy(np.concatenate(columns)), totals[0].device)
    return int(counts.sum()), list(there.split([len(column) for column in columns]))


def _rows(some: StackedMessages) -> np.ndarray:
    """[tensors, messages] where each message's begins."""
    begin = np.array([t.data_ptr() for t in some.tensors])[:, None]
    step = np.array([t.nbytes // len(t) for t in some.tensors])[:, None]
    return begin + step * np.array(some.at)
