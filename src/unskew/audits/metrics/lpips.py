"""LPIPS v0.1 on AlexNet, from a local weights file: perceptual distance of two images, 0 for a copy.

For each of five layers: features of both images, each divided by its norm over channels, the squared difference
weighted by channel (learned), mean over positions; LPIPS is the sum over layers. Papers often print VGG values, whose
scale differs from AlexNet's: the result is marked `alex` and must not be compared with them.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.audits.metrics.metric_values import MetricValues, SkippedMetric, check_pair
from unskew.base.errors import UserError
from unskew.data import data_root

FILE = "lpips_alex.npz"
MIN_SIDE = 31  # pixels; with fewer, nothing is left after AlexNet's second pooling
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
# Index in AlexNet, outputs, inputs, kernel, stride and padding of each convolution, and whether pooling comes first.
LAYERS = (
    (0, 64, 3, 11, 4, 2, False),
    (3, 192, 64, 5, 1, 2, True),
    (6, 384, 192, 3, 1, 1, True),
    (8, 256, 384, 3, 1, 1, False),
    (10, 256, 256, 3, 1, 1, False),
)


def lpips(true: Tensor, recovered: Tensor, root: Path | None = None) -> MetricValues | SkippedMetric:
    """LPIPS of each image [1 or 3, H, W] with pixels in [0, 1]. root: the dataset folder, by default $UNSKEW_DATA."""
    check_pair(true, recovered)
    if true.ndim != 4 or true.shape[1] not in (1, 3) or min(true.shape[2:]) < MIN_SIDE:
        size = " × ".join(map(str, true.shape[1:]))
        return SkippedMetric(
            "lpips", f"AlexNet needs images of at least {MIN_SIDE} × {MIN_SIDE} pixels, these are {size}"
        )
    path = data_root(root) / FILE
    if not path.is_file():
        return SkippedMetric("lpips", f"no weights at {path}; copy {FILE} into the dataset folder ($UNSKEW_DATA)")
    weights = {name: leaf.to(true.device) for name, leaf in _read(path).items()}
    with torch.no_grad():
        return MetricValues("lpips", "alex", _distance(weights, true, recovered).double())


def _distance(weights: dict[str, Tensor], true: Tensor, recovered: Tensor) -> Tensor:
    """Distances [n]; a grey image is expanded to three equal channels."""
    shift, scale = (true.new_tensor(c, dtype=torch.float32).view(1, 3, 1, 1) for c in (SHIFT, SCALE))
    pair = [((2 * x.float() - 1).expand(-1, 3, -1, -1) - shift) / scale for x in (true, recovered)]
    total = torch.zeros(len(true), device=true.device)
    for number, (at, _, _, _, stride, padding, pooled) in enumerate(LAYERS):
        kernel, bias = weights[f"features.{at}.weight"], weights[f"features.{at}.bias"]
        pair = [F.max_pool2d(h, 3, 2) if pooled else h for h in pair]
        pair = [F.relu(F.conv2d(h, kernel, bias, stride, padding)) for h in pair]
        a, b = (h / (h.pow(2).sum(1, keepdim=True).sqrt() + 1e-10) for h in pair)
        total += F.conv2d((a - b).pow(2), weights[f"lin{number}.model.1.weight"]).mean((1, 2, 3))
    return total


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of the weights file, with their shapes checked."""
    try:
        with np.load(path, allow_pickle=False) as file:
            tensors = {name: torch.from_numpy(file[name].astype(np.float32)) for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"{path}: expected the weights of LPIPS, found: {error}; copy the file again") from error
    for name, shape in weight_shapes().items():
        if name not in tensors or tuple(tensors[name].shape) != shape:
            actual = list(tensors[name].shape) if name in tensors else "nothing"
            raise UserError(f"{path}: expected {name} of shape {list(shape)}, found {actual}; copy the file again")
    return tensors


def weight_shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the weights file."""
    expected: dict[str, tuple[int, ...]] = {}
    for number, (at, outputs, inputs, kernel, _, _, _) in enumerate(LAYERS):
        expected[f"features.{at}.weight"] = (outputs, inputs, kernel, kernel)
        expected[f"features.{at}.bias"] = (outputs,)
        expected[f"lin{number}.model.1.weight"] = (1, outputs, 1, 1)
    return expected
