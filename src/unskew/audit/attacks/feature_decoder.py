"""Decoder (FLea 2024): learn to undo the head on rows of one's own, and apply that to the features that were shared.

    (1)  f = h(x)                                         frozen head up to the cut, rows as the model takes them
    (2)  d(f) = conv1x1 32 -> deconv3x3 32, stride 2 -> conv3x3 32, stride 2 -> conv1x1 channels     no activations
    (3)  min over d  mean ( d(h(x)) - pixels(x) )^2       pixels from 0 to 1, not standardised
    (4)  20 epochs of 50,000 rows in batches of 128: 7800 steps, learning rate 0.001

Paper: Xia, Ghosh, Qiu, Mascolo, "FLea: Addressing Data Scarcity and Label Skew in Federated Learning via
Privacy-preserving Feature Augmentation", KDD 2024, appendix D.
(2) is linear: it finds what a linear map can, and a deeper net may find more. An attack that fails proves nothing.
Differs: the paper's decoder learns from all training rows, this one from those of clients that are not attacked. Adam
in place of SGD with momentum, and features standardised by channel, which a linear map can undo: both only help the
attacker. His rows are not augmented. Features smaller than the rows are enlarged first; those that are larger in some
direction, or no images, get a single linear layer in place of (2): making them smaller would throw away what they tell.
Rows that are no pixels are learned as the model takes them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.audit.problem import Progress, quiet
from unskew.audit.replayed_run import ReplayedRun
from unskew.audit.shared_data import SharedArtefact

BATCH, RATE, WIDTH = 128, 1e-3, 32
FIRST = 512  # rows from which the features' scale is taken
TOLD = 20  # times that the training error is kept


class DecoderResult(NamedTuple):
    """Rows [n, ...] as the model takes them, the training error by time [TOLD], and how many rows it was taught."""

    rows: Tensor
    errors: Tensor
    taught: int


def net(features: tuple[int, ...], row: tuple[int, ...]) -> nn.Sequential:
    """(2)."""
    if len(features) != 3 or len(row) != 3 or any(f > r for f, r in zip(features[1:], row[1:])):
        size = int(torch.tensor(features).prod()), int(torch.tensor(row).prod())
        return nn.Sequential(nn.Flatten(), nn.Linear(*size), nn.Unflatten(1, row))
    enlarge = [nn.Upsample(row[1:])] if features[1:] != row[1:] else []
    return nn.Sequential(
        *enlarge,
        nn.Conv2d(features[0], WIDTH, 1),
        nn.ConvTranspose2d(WIDTH, WIDTH, 3, stride=2, padding=1, output_padding=1),
        nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1),
        nn.Conv2d(WIDTH, row[0], 1),
    )


def decoder(shared: SharedArtefact, steps: int, seed: int, progress: Progress = quiet) -> DecoderResult:
    """What the shared features show of the rows behind them."""
    world, client_rows = shared.world, shared.world.context.client_rows
    own = shared.others(seed)
    first = shared.made(client_rows.x, own[:FIRST, None])  # (1)
    along = tuple(i for i in range(first.ndim) if i != 1)
    mean, scale = first.mean(along, keepdim=True), first.std(along, keepdim=True).nan_to_num(1.0).clamp_min(1e-6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        guess = net(tuple(first.shape[1:]), tuple(client_rows.x.shape[1:])).to(first)
    # Channels innermost take more than a third from a step on a CPU (CIFAR-10, one thread: 690 to 410 ms).
    inner = first.ndim == 4 and first.device.type == "cpu"
    layout = torch.channels_last if inner else torch.contiguous_format
    optimiser = torch.optim.Adam(guess.parameters(), RATE)
    generator = torch.Generator().manual_seed(seed)
    errors: list[Tensor] = []
    for step in range(steps):
        rows = own[torch.randint(len(own), (min(BATCH, len(own)),), generator=generator)]
        features = (shared.made(client_rows.x, rows[:, None]) - mean) / scale
        loss = F.mse_loss(guess(features.contiguous(memory_format=layout)), _taught(world, rows).to(features))  # (3)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        errors.append(loss.detach())
        progress(step + 1, steps)
    with torch.no_grad():
        found = guess((shared.items - mean) / scale)
    chunks = torch.stack(errors).tensor_split(min(TOLD, steps))
    box = world.box(found)
    rows = found if box is None else box.low + found * (box.high - box.low)
    return DecoderResult(rows, torch.stack([chunk.mean() for chunk in chunks]), len(own))


def _taught(world: ReplayedRun, rows: Tensor) -> Tensor:
    """Pixels of training rows; rows that have none as the model takes them."""
    client_rows = world.context.client_rows
    x = client_rows.prepare(client_rows.x[rows.to(client_rows.x.device)])
    pixels = world.unit(x)
    return x if pixels is None else pixels
