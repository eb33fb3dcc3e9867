"""`unskew models`: the zoo with the shape at every cut, without a number computed."""

from __future__ import annotations

import json

import pytest
import torch

from runner.conftest import Command
from unskew import models as zoo
from unskew.base.errors import UserError
from unskew.describe.describe_model import USUAL, describe


@pytest.mark.parametrize("name", zoo.ZOO)
def test_description_agrees_with_the_model_itself(name: str) -> None:
    found = describe(name)
    net = zoo.build(name, found.shape, found.classes, seed=0)
    assert (found.parameters, found.feature, len(found.blocks)) == (net.count, net.feature, net.depth)
    assert found.batchnorm == net.has_norm
    h = torch.zeros(2, *found.shape)
    for i, block in enumerate(found.blocks):
        h = net.block(net.initial, h, i, train=False)
        assert block.shape == tuple(h.shape[1:])


def test_table(unskew: Command) -> None:
    said = unskew("models")
    assert said.code == 0
    for words in (*zoo.ZOO, "2,156,490", "cut 3: 512", "64x8x8", "timm:NAME", "nn.Sequential"):
        assert words in said.out, words


def test_page(unskew: Command) -> None:
    said = unskew("models", "cnn", "--shape", "1,28,28", "--classes", "62")
    for words in ("1,690,046 parameters on 1x28x28, 62 classes", "32x14x14", "(the feature)", "(the logits)", "31,806"):
        assert words in said.out, words


def test_shape_alone_lists_the_nets_that_fit(unskew: Command) -> None:
    found = json.loads(unskew("models", "--shape", "561", "--json").out)
    assert [one["name"] for one in found] == ["mlp"]
    assert found[0]["parameters"] == 561 * 64 + 64 + 64 * 10 + 10


def test_usual_rows_are_those_of_the_papers() -> None:
    assert (describe("audionet").parameters, describe("harnet").parameters) == (25_602, 691_974)
    assert set(USUAL) <= set(zoo.ZOO)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cnnn"], "did you mean cnn?"),
        (["cnn", "--shape", "7"], "does not fit rows of shape 7"),
        (["harnet", "--shape", "1,8,8"], "does not fit rows of shape 1x8x8"),
        (["--shape", "0,3"], "3,32,32"),
    ],
)
def test_mistakes_are_told_in_one_line(words: list[str], told: str, unskew: Command) -> None:
    said = unskew("models", *words)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert "Traceback" not in said.err


def test_a_net_that_is_too_deep_for_the_rows_is_not_listed_for_them() -> None:
    assert "motion 1x128x3" not in describe("cnn5x5").takes
    with pytest.raises(UserError):
        describe("cnn5x5", (1, 8, 8), 10)
