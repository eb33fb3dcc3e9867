"""FLea's networks for sound and motion."""

from torch import nn


def _sound_block(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, 2, kernel // 2)
    nn.init.kaiming_normal_(conv.weight, a=0.1)
    nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
    # The released code applies ReLU before BatchNorm, so features may be negative.
    return nn.Sequential(conv, nn.ReLU(), nn.BatchNorm2d(outputs))


def audionet(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """FLea's AudioNet for mel spectrograms 2x64x344; cut 2 is its feature (16x16x86); 25,602 parameters."""
    blocks = _sound_block(shape[0], 8, 5), _sound_block(8, 16, 3), _sound_block(16, 32, 3), _sound_block(32, 64, 3)
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*blocks, pool, nn.Linear(64, classes))


def _motion_block(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    # The released code pads both sides of both axes, so the width grows by 2 in every block.
    conv = nn.Conv2d(inputs, outputs, (kernel, 1), (stride, 1), padding=1)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


def harnet(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """FLea's HARNet for windows 1x128x3; cut 2 is its feature (128x20x7); 691,974 parameters for 6 classes."""
    channels, height, width = shape
    blocks = []
    for outputs, kernel, stride in ((64, 3, 3), (128, 6, 2), (256, 6, 2), (256, 6, 2)):
        blocks.append(_motion_block(channels, outputs, kernel, stride))
        channels, height, width = outputs, (height + 2 - kernel) // stride + 1, width + 2
    if height < 1:
        raise ValueError("the window is too short for four strided blocks")
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(channels * height * width, classes))
