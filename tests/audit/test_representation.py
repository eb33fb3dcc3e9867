"""MSE of representations, and label accuracy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import unskew as us
from unskew.audit.metrics.label_accuracy import label_accuracy
from unskew.audit.metrics.representation import representation_mse
from unskew.models import Model


def test_it_is_taken_of_what_the_last_layer_sees() -> None:
    body = nn.Linear(2, 2, bias=False)
    body.weight.data = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    model = Model(nn.Sequential(body, nn.Linear(2, 3)), "two")
    found = representation_mse(model, model.initial, torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 2.0]]))
    assert found.values.tolist() == [(2.0**2 + 4.0**2) / 2]
    assert found.space == "two, cut 1"


def test_labels_are_counted_as_often_as_they_occur_and_in_any_order() -> None:
    true = torch.tensor([3, 3, 7, 1])
    assert label_accuracy(true, torch.tensor([1, 7, 3, 3])) == 100
    assert label_accuracy(true, torch.tensor([3, 3, 3, 3])) == 50
    assert label_accuracy(true, torch.tensor([0, 2, 9, 4])) == 0


def test_a_guess_for_another_number_of_labels_is_refused() -> None:
    with pytest.raises(us.UserError, match=r"each of \[2\] labels, found \[1\]"):
        label_accuracy(torch.tensor([1, 2]), torch.tensor([1]))
