"""MSE of representations: what the attacked model's last layer would see of the true and the recovered image.

Its scale is the network's own, so that it compares attacks on one model and nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.audit.metrics.metric_values import MetricValues, check_pair
from unskew.base.tree import State
from unskew.models.model import Model


@torch.no_grad()
def representation_mse(model: Model, state: State, true: Tensor, recovered: Tensor) -> MetricValues:
    """Of each image, at the cut before the last block, in eval mode; both as the model takes them."""
    check_pair(true, recovered)
    a, b = (model.run(state, x, 0, model.feature).flatten(1).double() for x in (true, recovered))
    return MetricValues("mse-r", f"{model.name}, cut {model.feature}", (a - b).pow(2).mean(1))
