"""`unskew models`: the zoo, with the shape at every cut."""

from __future__ import annotations

import json

import pytest
import torch

from runner.conftest import Command
from unskew import models as zoo
from unskew.base.errors import UserError
from unskew.describe.describe_model import DEFAULT_ROWS, describe


@pytest.mark.parametrize("name", zoo.ZOO)
def test_description_agrees_with_the_model_itself(name: str) -> None:
    described = describe(name)
    net = zoo.build(name, described.shape, described.classes, seed=0)
    assert (described.parameters, described.feature, len(described.blocks)) == (
        net.parameter_count,
        net.feature,
        net.depth,
    )
    assert described.batchnorm == net.has_norm
    h = torch.zeros(2, *described.shape)
    for i, block in enumerate(described.blocks):
        h = net.block(net.initial, h, i, train=False)
        assert block.shape == tuple(h.shape[1:])


def test_table(unskew: Command) -> None:
    result = unskew("models")
    assert result.code == 0
    for words in (*zoo.ZOO, "2,156,490", "cut 3: 512", "64x8x8", "timm:NAME", "nn.Sequential"):
        assert words in result.out, words


def test_page(unskew: Command) -> None:
    result = unskew("models", "cnn", "--shape", "1,28,28", "--classes", "62")
    for words in ("1,690,046 parameters on 1x28x28, 62 classes", "32x14x14", "(the feature)", "(the logits)", "31,806"):
        assert words in result.out, words


def test_shape_without_a_name_lists_the_networks_that_fit(unskew: Command) -> None:
    described = json.loads(unskew("models", "--shape", "561", "--json").out)
    assert [one["name"] for one in described] == ["mlp"]
    assert described[0]["parameters"] == 561 * 64 + 64 + 64 * 10 + 10


def test_default_shapes_are_those_of_the_papers() -> None:
    assert (describe("audionet").parameters, describe("harnet").parameters) == (25_602, 691_974)
    assert set(DEFAULT_ROWS) <= set(zoo.ZOO)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cnnn"], "did you mean cnn?"),
        (["cnn", "--shape", "7"], "does not fit rows of shape 7"),
        (["harnet", "--shape", "1,8,8"], "does not fit rows of shape 1x8x8"),
        (["--shape", "0,3"], "3,32,32"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str, unskew: Command) -> None:
    result = unskew("models", *words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


def test_a_network_too_deep_for_a_shape_does_not_list_it() -> None:
    assert "motion 1x128x3" not in describe("cnn5x5").takes
    with pytest.raises(UserError):
        describe("cnn5x5", (1, 8, 8), 10)
