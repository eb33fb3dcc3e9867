"""Scores a split with the layers of a stack, as if groups of its rows belonged to clients."""

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
from unskew.engines.stacked.cohort_stack import copy_into
from unskew.engines.stacked.cuda_graph import CudaGraph, new_pool
from unskew.models.model import Model
from unskew.protocol.method import Method
from unskew.protocol.part import Part
from unskew.wire.requests_and_replies import Received

ROW_GROUPS = 20  # groups of rows, each in place of a client
CHUNK = 1000  # rows scored at once; their graphs hold 3.4 GiB for mobilenet_v2, in proportion to the rows
# On a GPU, rows of at most SMALL_ROW numbers are scored in larger chunks, because launches dominate there.
SMALL_ROW, CHUNK_OF_SMALL_ROWS = 3 * 32 * 32, 5000

Pass = Callable[[], None]


class StackedEvaluator:
    """Scores splits in passes. If one runs out of memory, all passes are halved for the rest of the run.

    Passes are captured as CUDA graphs like steps, leave their results on the device, and are synchronised once: 10,000
    rows of the cnn take 3.3 ms on an H200, where single launches and three synchronisations a pass took 6.5.
    """

    def __init__(self, context: EngineContext) -> None:
        self._context, self._gpu = context, context.device.type == "cuda"
        small_rows = self._gpu and context.model.rows_independent and context.client_rows.x[0].numel() <= SMALL_ROW
        self._rows = CHUNK_OF_SMALL_ROWS if small_rows else CHUNK
        self._pool = new_pool(context.device)
        self._model: State = {}  # static memory from which captured passes read the model
        self._passes: dict[tuple[str, bool], tuple[Tensor, list[Pass]]] = {}
        self._inputs: tuple[Method, Received]

    def score(self, round: int, received: Received, split: str) -> ConfusionScore:
        method, _ = self._context.at_round_on_device(round)
        # A part that changes the batch may depend on the round and on what it received: then passes are not captured.
        changes = any(type(part).batch is not Part.batch for part in method.parts)
        while True:
            try:
                self._inputs = method, received if changes else Received(self._copy_model(received.model), {})
                return self._score(split, not changes)
            except torch.OutOfMemoryError:
                if self._rows == 1:
                    raise
            # Outside the except block, where the error no longer holds the failed pass's tensors.
            self._rows = (min(self._rows, len(self._context.splits[split].y)) + 1) // 2
            self.release()
            torch.cuda.empty_cache()

    def release(self) -> None:
        """Free graphs and results. A new pool is needed: one whose graphs are gone accepts no others."""
        self._passes.clear()
        self._pool = new_pool(self._context.device)

    def _score(self, split: str, capture: bool) -> ConfusionScore:
        if (split, capture) not in self._passes:
            self._passes[split, capture] = self._make_passes(split, capture)
        results, passes = self._passes[split, capture]
        for run_pass in passes:
            run_pass()
        on_host, classes = results.cpu(), self._context.task.classes
        return ConfusionScore(on_host[:, 1:].sum(0).long().view(-1, classes), sum(on_host[:, 0].tolist()))

    def _make_passes(self, split: str, capture: bool) -> tuple[Tensor, list[Pass]]:
        """Results [passes, 1 + owners * classes^2], loss and confusion (exact in float64), and what fills them."""
        device, scored = self._context.device, self._context.splits[split]
        chunks = torch.split(torch.arange(len(scored.y), device=device), self._rows)
        cells = scored.owners * self._context.task.classes**2
        results = torch.zeros(len(chunks), 1 + cells, dtype=torch.float64, device=device)
        passes: list[Pass] = [partial(self._pass, split, chunk, result) for chunk, result in zip(chunks, results)]
        return results, [CudaGraph(each, device, self._pool) for each in passes] if capture else passes

    def _pass(self, split: str, rows: Tensor, result: Tensor) -> None:
        context, model, scored = self._context, self._context.model, self._context.splits[split]
        run = partial(run_in_row_groups, model) if self._gpu else model.run
        ready = kernels.gather_rows(scored.x, rows, Augment(), {}, context.client_rows.prepare, context.dtype)
        owner = None if scored.owner is None else scored.owner[rows]
        confusion, loss = context.confusion_and_loss(
            *self._inputs, to_channels_last(ready, model), scored.y[rows], run, owner, scored.owners
        )
        result.copy_(torch.cat([loss[None], confusion.flatten().double()]))

    def _copy_model(self, model: State) -> State:
        if not self._model:
            self._model = {name: torch.empty_like(tensor) for name, tensor in model.items()}
        copy_into(self._model, model)
        return self._model


def run_in_row_groups(model: Model, state: State, x: Tensor) -> Tensor:
    """Logits [n, classes] in eval mode, mapped over groups of rows so that the layers of a stack apply.

    For normalisation, depthwise filters, or a ReLU and a pooling after a convolution they make one pass over the
    activations where PyTorch makes several. Other nets gain nothing, and may normalise rows by one another.
    """
    gains = model.has_convolution or "statistic" in model.roles.values()
    if len(x) % ROW_GROUPS or not (model.rows_independent and gains):
        return model.run(state, x)
    each = vmap(lambda rows: model.run(state, rows))(x.reshape(ROW_GROUPS, -1, *x.shape[1:]))
    return each.flatten(0, 1)
