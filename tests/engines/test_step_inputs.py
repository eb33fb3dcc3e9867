"""Inputs of steps side by side in memory: what goes in comes out, whatever its type and shape."""

import torch

from unskew.engines.stacked.step_inputs import StepInputBuffer

KINDS = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.uint8)


def test_every_type_and_shape_comes_out_as_it_went_in() -> None:
    shapes = ((), (1,), (3,), (2, 5), (0,), (700, 3))
    first = {str(kind): tuple(torch.zeros(1, *shape, dtype=kind) for shape in shapes) for kind in KINDS}
    packed = StepInputBuffer(first, 4, torch.device("cpu"))
    torch.manual_seed(0)
    put = {
        name: [torch.randint(0, 2, place.shape).to(place.dtype) for place in places]
        for name, places in packed.places.items()
    }
    for name, places in packed.places.items():
        for place, numbers in zip(places, put[name]):
            assert place.shape == numbers.shape
            place.copy_(numbers)
    for again in range(2):
        packed.rewind()
        for step in range(4):
            taken = packed.take()
            for name, tensors in put.items():
                for t, numbers in zip(taken[name], tensors):
                    assert torch.equal(t, numbers[step]), (again, step, name, numbers.shape)


def test_axes_stay_in_the_order_of_memory() -> None:
    """Images are read channel by channel: [m, b, c, h, w] that lies as [m, c, b, h, w] needs no copy for that."""
    image = torch.randn(1, 2, 5, 3, 4, 4).transpose(2, 3).contiguous().transpose(2, 3)
    packed = StepInputBuffer((image,), 3, torch.device("cpu"))
    packed.places[0].copy_(torch.stack([image[0], 2 * image[0], 3 * image[0]]))
    packed.take()
    (second,) = packed.take()
    assert torch.equal(second, 2 * image[0])
    assert second.transpose(1, 2).is_contiguous()


def test_what_was_taken_is_not_the_memory_that_is_filled_again() -> None:
    packed = StepInputBuffer((torch.zeros(1, 3),), 2, torch.device("cpu"))
    packed.places[0].fill_(1.0)
    (taken,) = packed.take()
    packed.places[0].fill_(2.0)
    assert taken.tolist() == [1.0, 1.0, 1.0]
