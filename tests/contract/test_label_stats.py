"""`label_stats`: computed from each client's own label counts, once per round."""

from dataclasses import replace
from typing import Any

import pytest
from small import federation
from torch import Tensor

import unskew as us
from unskew.base.tree import State


def test_label_stats_are_per_client_and_computed_once_a_round(engine: str, fedavg_with: Any) -> None:
    """The logged term is the mean over the steps of the value that they saw."""
    computed: list[Tensor] = []

    class Watch(us.Part):
        def label_stats(self, counts: Tensor) -> State:
            computed.append(counts)
            return {"first": counts[0]}

        def loss(self, view: us.View) -> Tensor:
            return view.label_stats(self)["first"] * 1.0

    fed = federation(fedavg_with(Watch), engine, local={"batch": 4, "epochs": 3, "lr": 0.1}, absence=[])
    snap, _ = fed.run_round(fed.start())
    computed.clear()
    _, report = fed.run_round(snap)
    assert len(computed) == (1 if engine == "stacked" else 3)  # per client, or once for all of them
    facts = fed.engine.context.client_rows.facts
    assert {k: terms["spy"] for k, terms in report.terms.items()} == {k: facts(k).counts[0].item() for k in range(3)}


def test_labels_outside_the_classes_are_refused() -> None:
    """In a joint count of all clients they would count for a neighbouring client."""
    fed = federation("fedavg", "loop")
    source = fed.engine.context.client_rows
    for label in (-1, 3):
        y = source.y.clone()
        y[source.index[1]] = label
        with pytest.raises(us.UserError, match=f"from 0 to 2, found .*{label}"):
            replace(source, y=y).facts_of([0, 1, 2])
