"""More clients than a stack has widths, of many sizes: some stay in the stack after their last step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import LOCAL, experiment, network
from test_contract import TOLERANCE, run_two_rounds

import unskew as us
from unskew.engines.stacked.widths import MAX_WIDTHS, widths
from unskew.runner.prepare_run import prepare
from unskew.server.federation import Federation

REFERENCE = "loop"  # the engine with which the stacked one is compared
BATCH = 4


def sizes_of(clients: int) -> list[int]:
    """Rows of the clients, from 1 to 25, unsorted."""
    drawn = np.random.default_rng(clients).integers(1, 26, clients)
    drawn[[3, 8]] = 1, 25
    return drawn.tolist()


def federation(method: str, engine: str, clients: int) -> Federation:
    """A third of the clients is absent in round 2, so its cohort has other widths than that of round 1."""
    gen, sizes = np.random.default_rng(5), sizes_of(clients)
    x, y = gen.normal(size=(sum(sizes), 5)).astype("float32"), gen.integers(0, 3, sum(sizes))
    group = np.repeat(np.arange(clients), sizes)
    data = us.from_arrays(x, y, x_test=x[:20], y_test=y[:20], group=group)
    absent = [{"clients": list(range(0, clients, 3)), "rounds": [2, 3]}]
    settings = experiment(method, engine, local=LOCAL | {"epochs": 1, "batch": BATCH}, absence=absent)
    return prepare(settings, data=data, model=network(False)).federation


@pytest.mark.parametrize(
    ("method", "clients"), [("fedavg", 40), ("fedavg", 70), ("scaffold", 40), ("scaffold", 70), ("flea-half", 40)]
)
def test_many_clients_train_in_a_stack_as_one_by_one(method: str, clients: int) -> None:
    """Two rounds in float64: the model, every client's state and loss terms, the server's state, and the ledger."""
    one_by_one, stacked = (run_two_rounds(federation(method, engine, clients)) for engine in (REFERENCE, "stacked"))
    assert one_by_one.tensors.keys() == stacked.tensors.keys()
    for name, tensor in one_by_one.tensors.items():
        torch.testing.assert_close(stacked.tensors[name], tensor, msg=lambda text, n=name: f"{n}: {text}", **TOLERANCE)
    assert one_by_one.ledger == stacked.ledger


@pytest.mark.parametrize("clients", [40, 70])
def test_some_of_these_clients_end_within_a_width(clients: int) -> None:
    """Otherwise the test above would not cover clients that stay in the stack after their last step."""
    steps = sorted((-(-n // BATCH) for n in sizes_of(clients)), reverse=True)
    assert clients > MAX_WIDTHS
    assert any(width > sum(s > t for s in steps) for t, width in enumerate(widths(steps)))
