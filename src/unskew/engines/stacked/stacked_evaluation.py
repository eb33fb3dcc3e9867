"""A split scored by the layers of a stack, its rows as if they were clients'."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from unskew.base.tree import State
from unskew.base.vmap import vmap
from unskew.data.augment import Augment
from unskew.engines.channels_last import to_channels_last
from unskew.engines.engine import ConfusionScore, EngineContext
from unskew.engines.stacked import kernels
from unskew.engines.stacked.cohort_stack import put
from unskew.engines.stacked.cuda_graph import CudaGraph, new_pool
from unskew.models.model import Model
from unskew.protocol.method import Method
from unskew.protocol.part import Part
from unskew.wire.message import Received

PARTS = 20  # the clients that rows pretend to be
CHUNK = 1000  # rows scored at once; their recordings keep 3.4 GiB for mobilenet_v2, and twice that if twice as many
LARGE, SMALL = 5000, 3 * 32 * 32  # rows scored at once on a GPU if they have so few numbers: a pass waits for launches

Pass = Callable[[], None]


class StackedEvaluator:
    """Scores whole splits, in passes that fit: one that does not halves them all, for good.

    Passes are recorded as steps are, leave what they found on the device, and are waited for together: 10,000 rows of
    the cnn take 3.3 ms on an H200, where launches one by one and three waits a pass made it 6.5.
    """

    def __init__(self, context: EngineContext) -> None:
        self._context, self._gpu = context, context.device.type == "cuda"
        small = self._gpu and context.model.rows_alone and context.client_rows.x[0].numel() <= SMALL
        self._rows = LARGE if small else CHUNK
        self._pool = new_pool(context.device)
        self._model: State = {}  # where recorded passes read the model
        self._passes: dict[tuple[str, bool], tuple[Tensor, list[Pass]]] = {}
        self._now: tuple[Method, Received]

    def score(self, round: int, received: Received, split: str) -> ConfusionScore:
        method, _ = self._context.at_round_on_device(round)
        # A part that changes the batch may do so by what it received and by numbers of the round.
        changes = any(type(part).batch is not Part.batch for part in method.parts)
        while True:
            try:
                self._now = method, received if changes else Received(self._in_place(received.model), {})
                return self._score(split, not changes)
            except torch.OutOfMemoryError:
                if self._rows == 1:
                    raise
            # Out here, where the error and with it what the failed pass had made are gone.
            self._rows = (min(self._rows, len(self._context.splits[split][1])) + 1) // 2
            self.release()
            torch.cuda.empty_cache()

    def release(self) -> None:
        """Let go of recordings and of what they found; a pool whose recordings are gone never takes another."""
        self._passes.clear()
        self._pool = new_pool(self._context.device)

    def _score(self, split: str, records: bool) -> ConfusionScore:
        if (split, records) not in self._passes:
            self._passes[split, records] = self._prepared(split, records)
        found, passes = self._passes[split, records]
        for each in passes:
            each()
        seen, classes = found.cpu(), self._context.task.classes
        return ConfusionScore(seen[:, 1:].sum(0).long().view(classes, classes), sum(seen[:, 0].tolist()))

    def _prepared(self, split: str, records: bool) -> tuple[Tensor, list[Pass]]:
        """Where each pass leaves its loss and confusion, counts being whole in float64; and the passes."""
        device, count = self._context.device, len(self._context.splits[split][1])
        chunks = torch.split(torch.arange(count, device=device), self._rows)
        found = torch.zeros(len(chunks), 1 + self._context.task.classes**2, dtype=torch.float64, device=device)
        passes: list[Pass] = [partial(self._pass, split, chunk, place) for chunk, place in zip(chunks, found)]
        return found, [CudaGraph(each, device, self._pool) for each in passes] if records else passes

    def _pass(self, split: str, rows: Tensor, place: Tensor) -> None:
        context, model, (x, y) = self._context, self._context.model, self._context.splits[split]
        run = partial(in_parts, model) if self._gpu else model.run
        ready = kernels.gather_rows(x, rows, Augment(), {}, context.client_rows.prepare, context.dtype)
        confusion, loss = context.scored(*self._now, to_channels_last(ready, model), y[rows], run)
        place.copy_(torch.cat([loss[None], confusion.flatten().double()]))

    def _in_place(self, model: State) -> State:
        if not self._model:
            self._model = {name: torch.empty_like(tensor) for name, tensor in model.items()}
        put(self._model, model)
        return self._model


def in_parts(model: Model, state: State, x: Tensor) -> Tensor:
    """Logits [n, classes] in eval mode, of rows in parts as if each were a client's: for the layers of a stack.

    With normalisation, depthwise filters, or a ReLU and a pooling after a convolution, that is one pass over the
    activations where PyTorch makes several. Other nets gain nothing, and may normalise rows by one another.
    """
    if len(x) % PARTS or not (model.rows_alone and (model.convolves or "statistic" in model.roles.values())):
        return model.run(state, x)
    each = vmap(lambda rows: model.run(state, rows))(x.reshape(PARTS, -1, *x.shape[1:]))
    return each.flatten(0, 1)
