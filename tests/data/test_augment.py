"""Crop, flip and cutout compared with a loop over images with the same draws."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import unskew as us
from unskew.data import Dataset, Split
from unskew.data.augment import STREAM, Augment
from unskew.runner.prepare_run import prepare as prepare_run

SHAPE = (3, 6, 8)
MEAN, STD = (0.5, 0.25, 0.75), (0.25, 0.5, 0.125)
OPTIONS = [
    Augment(crop=2),
    Augment(flip=True),
    Augment(cutout=3),
    Augment(cutout=4),
    Augment(crop=2, flip=True),
    Augment(crop=3, flip=True, cutout=4),
]


def images(n: int = 40, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    """Random images without zeros, so that a zero can only be padding."""
    return torch.randint(1, 256, (n, *shape), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def prepare() -> Callable[[Tensor], Tensor]:
    x = images(3)
    rows = Split(x, torch.arange(3))
    return Dataset("toy", rows, rows, ("a", "b", "c"), MEAN, STD).prepare


def draws(augment: Augment, n: int = 40, seed: int = 1, steps: int = 1) -> dict[str, Tensor]:
    drawn = augment.draw(np.random.default_rng(seed), steps, n, SHAPE)
    return {name: t[0] for name, t in drawn.items()}


def augment_image(augment: Augment, image: np.ndarray, offset: list[int], flip: bool, hole: list[int]) -> np.ndarray:
    """One image: pad with zeros, cut out a window, mirror it, normalise, blank a square."""
    _, height, width = image.shape
    p = augment.crop
    image = np.pad(image, ((0, 0), (p, p), (p, p)))[:, offset[0] : offset[0] + height, offset[1] : offset[1] + width]
    image = image[:, :, ::-1] if flip else image
    out = (image / 255 - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]
    if augment.cutout:
        top, left = (centre - augment.cutout // 2 for centre in hole)
        for row in range(max(top, 0), min(top + augment.cutout, height)):
            for column in range(max(left, 0), min(left + augment.cutout, width)):
                out[:, row, column] = 0
    return out


@pytest.mark.parametrize("augment", OPTIONS)
def test_apply_equals_a_loop_over_images(augment: Augment) -> None:
    x, draw = images(), draws(augment)
    out = augment.apply(x, draw, prepare())
    each = zip(x.numpy(), draw["offset"].tolist(), draw["flip"].tolist(), draw["hole"].tolist())
    expected = np.stack([augment_image(augment, *one) for one in each])
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(out, prepare()(x))


def test_padding_is_zero_before_normalisation() -> None:
    """The window in the top left corner shows two padded rows: (0 - mean) / std = -2, -0.5, -6."""
    augment, x = Augment(crop=2), images(1)
    draw = {"offset": torch.tensor([[0, 2]]), "flip": torch.tensor([False]), "hole": torch.zeros(1, 2).long()}
    out = augment.apply(x, draw, prepare())
    assert out[0, :, :2].flatten(1).unique(dim=1).flatten().tolist() == [-2.0, -0.5, -6.0]
    assert torch.equal(out[0, :, 2:], prepare()(x)[0, :, :-2])


def test_the_middle_window_is_the_image() -> None:
    augment, x = Augment(crop=2), images(1)
    draw = {"offset": torch.tensor([[2, 2]]), "flip": torch.tensor([False]), "hole": torch.zeros(1, 2).long()}
    assert torch.equal(augment.apply(x, draw, prepare()), prepare()(x))


@pytest.mark.parametrize(
    ("hole", "blank"),
    [
        ((3, 4), 16),  # rows 1..4, columns 2..5
        ((0, 0), 4),  # rows 0..1, columns 0..1
        ((5, 7), 9),  # rows 3..5, columns 5..7
        ((0, 4), 8),  # rows 0..1, columns 2..5
    ],
)
def test_cutout_is_zero_after_normalisation_and_clipped(hole: tuple[int, int], blank: int) -> None:
    """A square of side 4 from centre - 2 in a 6x8 image, as many pixels in every channel."""
    augment, x = Augment(cutout=4), images(1)
    draw = {"offset": torch.zeros(1, 2).long(), "flip": torch.tensor([False]), "hole": torch.tensor([hole])}
    out = augment.apply(x, draw, prepare())
    assert (out == 0).sum((0, 2, 3)).tolist() == [blank] * 3
    assert torch.equal(out[out != 0], prepare()(x)[out != 0])


def test_without_options_rows_are_not_changed() -> None:
    augment, x = Augment(), images()
    assert not augment
    assert all(OPTIONS)
    assert torch.equal(augment.apply(x, draws(augment), prepare()), prepare()(x))


def test_input_rows_are_not_modified() -> None:
    x = images()
    before = x.clone()
    OPTIONS[-1].apply(x, draws(OPTIONS[-1]), prepare())
    assert torch.equal(x, before)


def test_draws_depend_only_on_the_generator() -> None:
    augment = OPTIONS[-1]
    torch.manual_seed(0)
    a = draws(augment)
    torch.manual_seed(1)
    b, other = draws(augment), draws(augment, seed=2)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not any(torch.equal(a[name], other[name]) for name in a)


def test_one_option_does_not_change_the_draws_of_another() -> None:
    """Numbers are drawn for every option, even if it is off."""
    both, crop, flip = Augment(crop=3, flip=True, cutout=4), Augment(crop=3), Augment(flip=True, cutout=4)
    assert torch.equal(draws(both)["offset"], draws(crop)["offset"])
    assert torch.equal(draws(both)["flip"], draws(flip)["flip"])
    assert torch.equal(draws(both)["hole"], draws(flip)["hole"])


def test_draws_cover_their_range() -> None:
    """2000 draws: offsets 0..2p, holes in every row and column, half of the images flipped (5 std: 0.056)."""
    draw = draws(Augment(crop=3, flip=True, cutout=4), n=2000)
    assert set(draw["offset"].flatten().tolist()) == set(range(7))
    assert set(draw["hole"][:, 0].tolist()) == set(range(6))
    assert set(draw["hole"][:, 1].tolist()) == set(range(8))
    assert float(draw["flip"].float().mean()) == pytest.approx(0.5, abs=0.056)
    assert not draws(Augment(crop=3), n=2000)["flip"].any()


def test_draws_have_one_entry_per_step_and_row() -> None:
    drawn = OPTIONS[-1].draw(np.random.default_rng(0), 5, 4, SHAPE)
    assert {name: tuple(t.shape) for name, t in drawn.items()} == {
        "offset": (5, 4, 2),
        "flip": (5, 4),
        "hole": (5, 4, 2),
    }


def test_rows_augmented_once_are_raw_rows() -> None:
    """The same result as augmenting at every access, before normalisation; train and test rows have different draws."""
    augment, x = Augment(crop=2, flip=True), images()
    drawn = augment.draw(np.random.default_rng((STREAM, 5, 1)), 1, len(x), SHAPE)
    once = augment.apply_once(x, seed=5, split=1)
    assert once.dtype == torch.uint8
    expected = augment.apply(x, {name: t[0] for name, t in drawn.items()}, prepare())
    torch.testing.assert_close(prepare()(once), expected)
    assert not torch.equal(once, augment.apply_once(x, seed=5, split=0))
    assert not torch.equal(once, augment.apply_once(x, seed=6, split=1))


def test_chunk_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    augment, x = Augment(crop=2, flip=True), images()
    expected = augment.apply_once(x, 0, 0)
    monkeypatch.setattr("unskew.data.augment.CHUNK_ROWS", 7)
    assert torch.equal(augment.apply_once(x, 0, 0), expected)


@pytest.mark.parametrize(("frozen", "test"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_run_augments_the_configured_rows(frozen: bool, test: bool) -> None:
    x, y = images(60, (3, 8, 8)), torch.arange(60) % 3
    data = us.from_arrays(x[:40], y[:40], name="toy", x_test=x[40:], y_test=y[40:])
    augment = {"crop": 2, "flip": True, "frozen": frozen, "test": test}
    experiment = us.Experiment(data={"name": "toy", "augment": augment}, partition={"name": "iid", "clients": 2})
    prepared = prepare_run(experiment, data=data)
    context = prepared.federation.engine.context
    assert torch.equal(context.client_rows.x, x[:40]) == (not frozen)
    assert torch.equal(context.splits["test"][0], x[40:]) == (not test)
    assert bool(context.client_rows.augment) == (not frozen)
    assert torch.equal(prepared.dataset.train.x, context.client_rows.x)
    lines = [line for line in prepared.header if line.startswith("augment")]
    assert len(lines) == (frozen or test)
    assert all(("training rows" in line, "test rows" in line) == (frozen, test) for line in lines)
    prepared.federation.engine.close()
