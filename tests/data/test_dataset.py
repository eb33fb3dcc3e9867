"""`Split` and `Dataset`: refused values, prepared rows, and rows held out for validation."""

import dataclasses

import numpy as np
import pytest
import torch

from unskew.base.errors import UserError
from unskew.data import Dataset, Split


def images(rows: int = 12, classes: int = 3) -> Split:
    gen = torch.Generator().manual_seed(rows)
    x = torch.randint(0, 256, (rows, 3, 4, 4), generator=gen).to(torch.uint8)
    return Split(x, torch.arange(rows) % classes, np.arange(rows) // 2)


def make_dataset(**changes: object) -> Dataset:
    base = Dataset("toy", images(), images(6), ("a", "b", "c"), (0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_prepare_scales_and_standardises_each_channel() -> None:
    data = make_dataset()
    x = data.train.x
    out = data.prepare(x)
    mean, std = torch.tensor(data.mean).view(1, 3, 1, 1), torch.tensor(data.std).view(1, 3, 1, 1)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, (x.float() / 255 - mean) / std)


def test_prepare_copies_floats_unchanged() -> None:
    x = torch.rand(4, 5)
    data = Dataset("table", Split(x, torch.zeros(4, dtype=torch.int64)), Split(x, torch.zeros(4).long()), ("only",))
    out = data.prepare(x)
    assert torch.equal(out, x)
    out.add_(1)
    assert float(x.max()) < 1


def test_prepare_is_differentiable() -> None:
    data = make_dataset(
        train=Split(torch.rand(2, 3, 4, 4), torch.zeros(2).long()),
        test=Split(torch.rand(1, 3, 4, 4), torch.ones(1).long()),
    )
    x = torch.rand(2, 3, 4, 4, requires_grad=True)
    data.prepare(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[0, :, 0, 0], 1 / torch.tensor(data.std))


@pytest.mark.parametrize("known", [True, False])
def test_input_scaling_exposes_mean_and_std(known: bool) -> None:
    data = make_dataset() if known else make_dataset(mean=None, std=None)
    prepare = data.input_scaling(torch.device("cpu"), torch.float64)
    assert prepare.dtype == torch.float64
    if known:
        assert prepare.mean is not None
        assert prepare.std is not None
        assert torch.equal(prepare.mean.flatten(), torch.tensor(data.mean))
        assert torch.equal(prepare.std.flatten(), torch.tensor(data.std))
    else:
        assert prepare.mean is prepare.std is None
    # Scaling is always in float32, so runs in float64 and in float32 see the same rows.
    assert torch.equal(prepare(data.train.x), data.prepare(data.train.x).double())


def test_shape_channels_and_classes_describe_the_rows() -> None:
    data = make_dataset()
    assert (data.shape, data.channels, data.num_classes, len(data.train)) == ((3, 4, 4), 3, 3, 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": Split(torch.rand(3, 2), torch.zeros(2).long())}, "3 rows in x and 2 labels"),
        ({"train": Split(torch.rand(3, 2).double(), torch.zeros(3).long())}, "uint8 or float32"),
        ({"train": Split(torch.rand(3), torch.zeros(3).long())}, r"\[N, ...\]"),
        ({"train": Split(torch.rand(0, 2), torch.zeros(0).long())}, "at least one row"),
        ({"train": Split(torch.rand(3, 2), torch.zeros(3))}, "int64"),
        ({"train": Split(torch.rand(3, 2), torch.tensor([0, 1, 3]))}, "labels from 0 to 2.*found 3"),
        ({"train": Split(torch.rand(3, 2), torch.tensor([0, 1, -1]))}, "found -1"),
        ({"train": Split(torch.tensor([[0.0], [torch.nan]]), torch.zeros(2).long())}, "first in row 1"),
        ({"train": Split(torch.rand(3, 2), torch.zeros(3).long(), np.arange(2))}, "one group per row"),
        ({"test": Split(torch.rand(3, 2), torch.zeros(3).long())}, "test split.*like the training rows"),
        ({"classes": ()}, "at least one class"),
        ({"mean": None}, "mean and std together"),
        ({"mean": (0.5,), "std": (0.5,)}, r"expected 3 values"),
        ({"std": (0.2, 0.0, 0.2)}, "std above 0"),
    ],
)
def test_errors_name_the_dataset(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=f"^toy.*{message}"):
        make_dataset(**changes)


def test_hold_out_is_deterministic_and_disjoint() -> None:
    rows = 60
    x = torch.arange(rows, dtype=torch.float32)[:, None]
    data = Dataset(
        "toy", Split(x, torch.arange(rows) % 3, np.arange(rows)), Split(x, torch.arange(rows) % 3), ("a", "b", "c")
    )
    one, again, other = data.hold_out(0.2, 1), data.hold_out(0.2, 1), data.hold_out(0.2, 2)
    assert one.validation is not None
    assert again.validation is not None
    assert other.validation is not None
    assert torch.equal(one.validation.x, again.validation.x)
    assert not torch.equal(one.validation.x, other.validation.x)
    assert sorted(torch.cat([one.train.x, one.validation.x])[:, 0].tolist()) == list(range(rows))
    assert torch.bincount(one.validation.y).tolist() == [4, 4, 4]
    assert one.validation.group is not None
    assert np.array_equal(one.validation.group, one.validation.x[:, 0].numpy().astype(int))
    assert data.validation is None
    assert one.test is data.test


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_hold_out_refuses_a_fraction_out_of_range(fraction: float) -> None:
    with pytest.raises(UserError, match="toy: expected a fraction between 0 and 1"):
        make_dataset().hold_out(fraction, 0)


def test_hold_out_twice_is_refused() -> None:
    with pytest.raises(UserError, match="expected no validation split yet"):
        make_dataset().hold_out(0.3, 0).hold_out(0.3, 0)
