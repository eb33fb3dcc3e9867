"""MSE of representations: the distance of the true and the recovered image at the input of the model's last layer.

Its scale depends on the network, so it only compares attacks on the same model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.audits.metrics.metric_values import MetricValues, check_pair
from unskew.base.tree import State
from unskew.models.model import Model


@torch.no_grad()
def representation_mse(model: Model, state: State, true: Tensor, recovered: Tensor) -> MetricValues:
    """MSE-R of each image at the input of the last block, in eval mode; both images are model inputs."""
    check_pair(true, recovered)
    a, b = (model.run(state, x, 0, model.feature).flatten(1).double() for x in (true, recovered))
    return MetricValues("mse-r", f"{model.name}, cut {model.feature}", (a - b).pow(2).mean(1))
