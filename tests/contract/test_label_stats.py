"""What a loss makes of the label counts: each client its own, and once a round."""

from dataclasses import replace
from typing import Any

import pytest
from small import federation
from torch import Tensor

import unskew as us
from unskew.base.tree import State


def test_known_is_each_clients_own_and_made_once_a_round(engine: str, spy: Any) -> None:
    """The logged term is what the steps saw, as a mean over them."""
    made: list[Tensor] = []

    class Watch(us.Part):
        def label_stats(self, counts: Tensor) -> State:
            made.append(counts)
            return {"first": counts[0]}

        def loss(self, view: us.View) -> Tensor:
            return view.label_stats(self)["first"] * 1.0

    fed = federation(spy(Watch), engine, local={"batch": 4, "epochs": 3, "lr": 0.1}, absence=[])
    snap, _ = fed.play(fed.start())
    made.clear()
    _, report = fed.play(snap)
    assert len(made) == (1 if engine == "stacked" else 3)  # for each client, or for all of them at once
    facts = fed.engine.context.client_rows.facts
    assert {k: terms["spy"] for k, terms in report.terms.items()} == {k: facts(k).counts[0].item() for k in range(3)}


def test_labels_beyond_the_classes_are_refused() -> None:
    """Counted together they would be a neighbour's."""
    fed = federation("fedavg", "loop")
    source = fed.engine.context.client_rows
    for label in (-1, 3):
        y = source.y.clone()
        y[source.index[1]] = label
        with pytest.raises(us.UserError, match=f"from 0 to 2, found .*{label}"):
            replace(source, y=y).facts_of([0, 1, 2])
