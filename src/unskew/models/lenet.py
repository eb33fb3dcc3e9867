"""The network that gradient inversion attacks are tested on."""

from torch import nn


def _conv(inputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, 12, 5, stride, 2), nn.Sigmoid())


def lenet(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """DLG's and iDLG's LeNet: three 5x5 convolutions, strides instead of pooling; 85,036 parameters on CIFAR-100.

    Sigmoids, because gradient matching needs second derivatives, which ReLU does not have. All tensors start uniform in
    (-0.5, 0.5), because smaller weights leave the sigmoids flat and the attack without a signal.
    """
    channels, height, width = shape
    flat = 12 * -(-height // 4) * -(-width // 4)  # two strides of 2, each rounding up
    blocks = _conv(channels, 2), _conv(12, 2), _conv(12, 1)
    net = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(flat, classes))
    for tensor in net.parameters():
        nn.init.uniform_(tensor, -0.5, 0.5)
    return net
