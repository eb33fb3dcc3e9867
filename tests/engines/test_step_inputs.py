"""Inputs of many steps in one buffer: each step reads back what was written, for every dtype and shape."""

import torch

from unskew.engines.stacked.step_inputs import StepInputBuffer

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.uint8)


def test_every_dtype_and_shape_is_read_back() -> None:
    shapes = ((), (1,), (3,), (2, 5), (0,), (700, 3))
    first = {str(dtype): tuple(torch.zeros(1, *shape, dtype=dtype) for shape in shapes) for dtype in DTYPES}
    buffer = StepInputBuffer(first, 4, torch.device("cpu"))
    torch.manual_seed(0)
    values = {
        name: [torch.randint(0, 2, tensor.shape).to(tensor.dtype) for tensor in tensors]
        for name, tensors in buffer.tensors.items()
    }
    for name, tensors in buffer.tensors.items():
        for tensor, value in zip(tensors, values[name]):
            assert tensor.shape == value.shape
            tensor.copy_(value)
    for repeat in range(2):
        buffer.rewind()
        for step in range(4):
            taken = buffer.next_step()
            for name, tensors in values.items():
                for t, value in zip(taken[name], tensors):
                    assert torch.equal(t, value[step]), (repeat, step, name, value.shape)


def test_the_memory_order_of_axes_is_kept() -> None:
    """Convolutions read images as [m, c, b, h, w], so [m, b, c, h, w] stored in that order needs no copy."""
    image = torch.randn(1, 2, 5, 3, 4, 4).transpose(2, 3).contiguous().transpose(2, 3)
    buffer = StepInputBuffer((image,), 3, torch.device("cpu"))
    buffer.tensors[0].copy_(torch.stack([image[0], 2 * image[0], 3 * image[0]]))
    buffer.next_step()
    (second,) = buffer.next_step()
    assert torch.equal(second, 2 * image[0])
    assert second.transpose(1, 2).is_contiguous()


def test_inputs_of_a_step_are_copies() -> None:
    buffer = StepInputBuffer((torch.zeros(1, 3),), 2, torch.device("cpu"))
    buffer.tensors[0].fill_(1.0)
    (taken,) = buffer.next_step()
    buffer.tensors[0].fill_(2.0)
    assert taken.tolist() == [1.0, 1.0, 1.0]
