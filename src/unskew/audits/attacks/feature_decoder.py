"""Decoder (FLea 2024): train a decoder of features on the attacker's own rows and apply it to the shared features.

    (1)  f = h(x)                                         frozen head up to the cut, rows as the model takes them
    (2)  d(f) = conv1x1 32 -> deconv3x3 32, stride 2 -> conv3x3 32, stride 2 -> conv1x1 channels     no activations
    (3)  min over d  mean ( d(h(x)) - pixels(x) )^2       pixels from 0 to 1, not standardised
    (4)  20 epochs of 50,000 rows in batches of 128: 7800 steps, learning rate 0.001

Paper: Xia, Ghosh, Qiu, Mascolo, "FLea: Addressing Data Scarcity and Label Skew in Federated Learning via
Privacy-preserving Feature Augmentation", KDD 2024, appendix D.
(2) is linear, so a deeper net may recover more. A failed attack proves nothing.
Differs: the paper's decoder is trained on all training rows, this one on those of clients that are not attacked. Adam
in place of SGD with momentum, and features standardised by channel, which a linear map can undo: both only help the
attacker. Its rows are not augmented. Features smaller than the rows are upsampled first; features that are larger in
some direction, or are not images, get a single linear layer in place of (2), because downsampling would lose
information. Rows that are not pixels are reconstructed in the model's normalised space.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.audits.problem import Progress, no_progress
from unskew.audits.replayed_run import ReplayedRun
from unskew.audits.shared_data import SharedArtefact

BATCH, RATE, WIDTH = 128, 1e-3, 32
SCALE_ROWS = 512  # rows that determine mean and scale of the features
ERROR_POINTS = 20  # points of the training curve that are kept


class DecoderResult(NamedTuple):
    """Rows [n, ...] in the model's input space, the training errors [ERROR_POINTS], and the number of training rows."""

    rows: Tensor
    errors: Tensor
    train_rows: int


def build_decoder(features: tuple[int, ...], row: tuple[int, ...]) -> nn.Sequential:
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


def decode_features(shared: SharedArtefact, steps: int, seed: int, progress: Progress = no_progress) -> DecoderResult:
    """Reconstruct the rows behind the shared features."""
    replayed, client_rows = shared.replayed, shared.replayed.context.client_rows
    own = shared.attacker_rows(seed)
    first = shared.make_items(client_rows.x, own[:SCALE_ROWS, None])  # (1)
    dims = tuple(i for i in range(first.ndim) if i != 1)
    mean, scale = first.mean(dims, keepdim=True), first.std(dims, keepdim=True).nan_to_num(1.0).clamp_min(1e-6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder = build_decoder(tuple(first.shape[1:]), tuple(client_rows.x.shape[1:])).to(first)
    # Channels last makes a step on a CPU more than a third faster (CIFAR-10, one thread: 690 to 410 ms).
    channels_last = first.ndim == 4 and first.device.type == "cpu"
    layout = torch.channels_last if channels_last else torch.contiguous_format
    optimiser = torch.optim.Adam(decoder.parameters(), RATE)
    generator = torch.Generator().manual_seed(seed)
    errors: list[Tensor] = []
    for step in range(steps):
        rows = own[torch.randint(len(own), (min(BATCH, len(own)),), generator=generator)]
        features = (shared.make_items(client_rows.x, rows[:, None]) - mean) / scale
        target = _target_pixels(replayed, rows).to(features)
        loss = F.mse_loss(decoder(features.contiguous(memory_format=layout)), target)  # (3)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        errors.append(loss.detach())
        progress(step + 1, steps)
    with torch.no_grad():
        decoded = decoder((shared.items - mean) / scale)
    chunks = torch.stack(errors).tensor_split(min(ERROR_POINTS, steps))
    limits = replayed.pixel_range(decoded)
    rows = decoded if limits is None else limits.low + decoded * (limits.high - limits.low)
    return DecoderResult(rows, torch.stack([chunk.mean() for chunk in chunks]), len(own))


def _target_pixels(replayed: ReplayedRun, rows: Tensor) -> Tensor:
    """Training rows as pixels in [0, 1], or as model inputs if they are not pixels."""
    client_rows = replayed.context.client_rows
    x = client_rows.prepare(client_rows.x[rows.to(client_rows.x.device)])
    pixels = replayed.unit(x)
    return x if pixels is None else pixels
