"""Policies for BatchNorm in a federation, where every client has different statistics.

average: its tensors are averaged like weights. local: they stay with the client (FedBN). frozen: training uses
the initial running statistics and does not update them. group: every BatchNorm becomes a GroupNorm, which has none.
"""

import math
from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

BatchNormPolicy = Literal["average", "local", "frozen", "group"]
POLICIES: dict[BatchNormPolicy, str] = {
    "average": "running statistics are averaged like weights, counters are copied",
    "local": "its tensors never leave a client (FedBN); scores are over the models of all clients of the round",
    "frozen": "training uses the initial running statistics and does not update them",
    "group": "every BatchNorm was converted to GroupNorm",
}
GROUPS = 32  # as in the GroupNorm paper; fewer if 32 does not divide the channels


def norm_tensors(blocks: nn.Sequential) -> tuple[str, ...]:
    """Names of all tensors of BatchNorm layers."""
    layers = [key for key, module in blocks.named_modules() if isinstance(module, _BatchNorm)]
    names = [*dict(blocks.named_parameters()), *dict(blocks.named_buffers())]
    return tuple(name for name in names if name.rpartition(".")[0] in layers)


def freeze_batchnorm(skeleton: nn.Module) -> None:
    """Put the BatchNorm layers of a train skeleton into eval mode; their scale and shift are still trained."""
    for module in skeleton.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


def replace_batchnorm(blocks: nn.Sequential) -> nn.Sequential:
    """Replace BatchNorm by GroupNorm in place, with new scale and shift; returns the network."""
    for parent in list(blocks.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, _BatchNorm):
                channels = child.num_features
                setattr(parent, name, nn.GroupNorm(math.gcd(GROUPS, channels), channels, child.eps, child.affine))
    return blocks
