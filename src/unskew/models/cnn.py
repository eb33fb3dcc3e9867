"""The papers' small convolutional networks, as blocks."""

from torch import nn


def _conv_block(inputs: int, outputs: int, padding: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2))


def _linear_block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs), nn.ReLU())


def cnn(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """FedLMD's network: two 5x5 convolutions that keep the size, one hidden layer; 2,156,490 parameters on CIFAR-10."""
    channels, height, width = shape
    flat = 64 * (height // 4) * (width // 4)
    blocks = _conv_block(channels, 32, 2), _conv_block(32, 64, 2), _linear_block(flat, 512)
    return nn.Sequential(*blocks, nn.Linear(512, classes))


def cnn5x5(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """HFMDS-FL's network "1600/512": the same without padding; 878,538 parameters on CIFAR-10."""
    channels, height, width = shape
    flat = 64 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    blocks = _conv_block(channels, 32, 0), _conv_block(32, 64, 0), _linear_block(flat, 512)
    return nn.Sequential(*blocks, nn.Linear(512, classes))


def mlp(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """One hidden layer of 64, for the built-in digits and for tests."""
    size = 1
    for side in shape:
        size *= side
    return nn.Sequential(_linear_block(size, 64), nn.Linear(64, classes))
