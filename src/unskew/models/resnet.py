"""Residual networks of basic blocks: ResNet-8 for small images, ResNet-18 with either stem.

Blocks are the stem, each basic block, the pooling, the classifier. Convolutions start He-normal with fan-out.
"""

from torch import Tensor, nn


def _conv(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 projection if the size changes."""

    fusible_sequences = True  # `forward` only calls complete sequences, so engines may fuse their layers

    def __init__(self, inputs: int, outputs: int, stride: int, track: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(inputs, outputs, 3, stride),
            nn.BatchNorm2d(outputs, track_running_stats=track),
            nn.ReLU(),
            _conv(outputs, outputs, 3, 1),
            nn.BatchNorm2d(outputs, track_running_stats=track),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            norm = nn.BatchNorm2d(outputs, track_running_stats=track)
            self.shortcut = nn.Sequential(_conv(inputs, outputs, 1, stride), norm)

    def forward(self, h: Tensor) -> Tensor:
        return (self.body(h) + self.shortcut(h)).relu()


def _resnet(stem: nn.Sequential, widths: tuple[int, ...], repeats: int, classes: int, track: bool) -> nn.Sequential:
    """Stages of `repeats` blocks; every stage but the first halves the image."""
    blocks: list[nn.Module] = []
    inputs = widths[0]
    for stage, outputs in enumerate(widths):
        for repeat in range(repeats):
            stride = 2 if stage > 0 and repeat == 0 else 1
            blocks.append(BasicBlock(inputs, outputs, stride, track))
            inputs = outputs
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(stem, *blocks, pool, nn.Linear(inputs, classes))


def _small_stem(channels: int, width: int, track: bool) -> nn.Sequential:
    return nn.Sequential(_conv(channels, width, 3, 1), nn.BatchNorm2d(width, track_running_stats=track), nn.ReLU())


def resnet8(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """CIFAR ResNet of depth 6n+2 with n = 1 (He et al. 2016, section 4.2), for FedLMD's Table 4; 78,042 parameters."""
    return _resnet(_small_stem(shape[0], 16, True), (16, 32, 64), 1, classes, True)


def resnet8_batchstats(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """resnet8 whose BatchNorm has no running statistics, as in FedLMD's code: accuracy depends on the test batch."""
    return _resnet(_small_stem(shape[0], 16, False), (16, 32, 64), 1, classes, False)


def resnet18(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """torchvision's ResNet-18, stem 7x7 of stride 2 and max-pool, as in FedBAR's code; 11,181,642 parameters."""
    stem = nn.Sequential(_conv(shape[0], 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return _resnet(stem, (64, 128, 256, 512), 2, classes, True)


def resnet18_cifar(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """ResNet-18 with the stem for 32x32 images: 3x3, stride 1, no max-pool; 11,173,962 parameters."""
    return _resnet(_small_stem(shape[0], 64, True), (64, 128, 256, 512), 2, classes, True)
