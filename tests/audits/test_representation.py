"""MSE of representations, and label accuracy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import unskew as us
from unskew.audits.metrics.label_accuracy import label_accuracy
from unskew.audits.metrics.representation import representation_mse
from unskew.models import Model


def test_representation_mse_uses_the_input_of_the_last_layer() -> None:
    body = nn.Linear(2, 2, bias=False)
    body.weight.data = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    model = Model(nn.Sequential(body, nn.Linear(2, 3)), "two")
    result = representation_mse(model, model.initial, torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 2.0]]))
    assert result.values.tolist() == [(2.0**2 + 4.0**2) / 2]
    assert result.space == "two, cut 1"


def test_label_accuracy_counts_repeated_labels_in_any_order() -> None:
    true = torch.tensor([3, 3, 7, 1])
    assert label_accuracy(true, torch.tensor([1, 7, 3, 3])) == 100
    assert label_accuracy(true, torch.tensor([3, 3, 3, 3])) == 50
    assert label_accuracy(true, torch.tensor([0, 2, 9, 4])) == 0


def test_a_different_number_of_guesses_is_refused() -> None:
    with pytest.raises(us.UserError, match=r"each of \[2\] labels, found \[1\]"):
        label_accuracy(torch.tensor([1, 2]), torch.tensor([1]))
