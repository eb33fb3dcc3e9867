"""MobileNetV2 for 32x32 images as FLea and FedDecorr use it: ReLU, stem of stride 1, shortcuts if the stride is 1."""

from collections import OrderedDict

from torch import Tensor, nn

# (expansion, channels, repeats, stride of the first block)
STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _conv_norm(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class InvertedResidual(nn.Module):
    """Expand by 1x1, filter by 3x3 depthwise, project linearly; with stride 1, add the shortcut."""

    fusible_sequences = True  # `forward` only calls complete sequences, so engines may fuse their layers

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = expansion * inputs
        self.body = nn.Sequential(
            _conv_norm(inputs, hidden),
            nn.ReLU(),
            _conv_norm(hidden, hidden, 3, stride, hidden),
            nn.ReLU(),
            _conv_norm(hidden, outputs),
        )
        self.shortcut: nn.Module | None = None
        if stride == 1:
            self.shortcut = nn.Identity() if inputs == outputs else _conv_norm(inputs, outputs)

    def forward(self, h: Tensor) -> Tensor:
        return self.body(h) if self.shortcut is None else self.body(h) + self.shortcut(h)


def mobilenet_v2(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """17 inverted residuals; cut 1 is FLea's feature (16x32x32), `feature` has size 1280; 2,296,922 parameters."""
    blocks: list[nn.Module] = []
    inputs = 32
    for expansion, outputs, repeats, first in STAGES:
        for stride in (first, *(1,) * (repeats - 1)):
            blocks.append(InvertedResidual(inputs, outputs, expansion, stride))
            inputs = outputs
    # The stem is part of the first block, so that cut i is the output of the paper's block i.
    stem = nn.Sequential(OrderedDict(stem=nn.Sequential(_conv_norm(shape[0], 32, 3), nn.ReLU()), residual=blocks[0]))
    top = nn.Sequential(_conv_norm(inputs, 1280), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(stem, *blocks[1:], top, nn.Linear(1280, classes))
