"""Stand-ins for absent clients: the label counts that they see, their state, and stand-ins without rows."""

from typing import Any

import pytest
import torch
from small import federation

import unskew as us
from unskew.base.tree import State


def test_stand_ins_preserve_scaffolds_invariant(engine: str) -> None:
    """c = mean c_k, where the stand-in's variate counts as that of a separate client."""
    fed = federation("scaffold+test-digest", engine, absence=[{"clients": [2], "rounds": [2, 9]}], rounds=6)
    snap = fed.start()
    for _ in range(6):
        snap, _ = fed.run_round(snap)
        fed.store.commit()
    assert ~2 in fed.store.entries
    for name, c in snap.parts["scaffold"].items():
        total = sum(tree["scaffold"][name] for tree in fed.store.entries.values())
        torch.testing.assert_close(c, total / 3, rtol=1e-9, atol=1e-12)


def test_stand_in_does_not_see_the_absent_clients_counts(engine: str, fedavg_with: Any) -> None:
    """Its label counts are those of its own rows: soft labels of two rows."""
    counts: list[tuple[int, list[float]]] = []

    class Watch(us.Part):
        def client_init(self, model: Any, client: us.Newcomer) -> State:
            counts.append((client.id, client.facts.counts.tolist()))
            return {"n": torch.zeros(())}

        def stand_ins(self, server: us.Server, absent: list[int]) -> dict[int, us.StandIn]:
            y = torch.full((2, 3), 1 / 3, dtype=torch.float64)
            return {k: us.StandIn(torch.ones(2, 5, dtype=torch.float64), y, 2) for k in absent}

    fed = federation(fedavg_with(Watch), engine, absence=[{"clients": [0], "rounds": [1, 2]}])
    fed.run_round(fed.start())
    assert (0, pytest.approx([2 / 3] * 3)) in counts


def test_stand_in_without_rows_does_not_train(engine: str, fedavg_with: Any) -> None:
    class EmptyStandIns(us.Part):
        def stand_ins(self, server: us.Server, absent: list[int]) -> dict[int, us.StandIn]:
            return {k: us.StandIn(torch.ones(0, 5), torch.zeros(0, dtype=torch.int64), 9) for k in absent}

    fed = federation(fedavg_with(EmptyStandIns), engine, absence=[{"clients": [0, 1, 2], "rounds": [1, 2]}])
    before = fed.start()
    after, _ = fed.run_round(before)
    assert after.model is before.model
