"""Rows scored as if they were clients', by the layers of a stack."""

from __future__ import annotations

from torch import Tensor

from unskew.core.state import State
from unskew.engine.mapping import vmap
from unskew.models.model import Model

PARTS = 20  # the clients that rows pretend to be


def in_parts(model: Model, state: State, x: Tensor) -> Tensor:
    """Logits [n, classes] in eval mode, of rows in parts as if each were a client's: for the layers of a stack.

    With normalisation, depthwise filters, or a cut and a pooling after a convolution, that is one pass over the
    activations where PyTorch makes several. Other nets gain nothing, and may normalise rows by one another.
    """
    if len(x) % PARTS or not (model.rows_alone and (model.convolves or "statistic" in model.roles.values())):
        return model.run(state, x)
    each = vmap(lambda rows: model.run(state, rows))(x.reshape(PARTS, -1, *x.shape[1:]))
    return each.flatten(0, 1)
