"""More clients than a stack has widths, of many sizes: some are trained on with others after they have ended."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import LOCAL, experiment, network
from test_contract import TOLERANCE, everything

import unskew as us
from unskew.engines.stacked.widths import SIZES as MOST_WIDTHS
from unskew.engines.stacked.widths import widths
from unskew.runner.prepare_run import prepare
from unskew.server.federation import Federation

REFERENCE = "loop"  # the engine to which the stacked one is held
BATCH = 4


def sizes_of(clients: int) -> list[int]:
    """Rows of the clients, from 1 to 25, in no order."""
    drawn = np.random.default_rng(clients).integers(1, 26, clients)
    drawn[[3, 8]] = 1, 25
    return drawn.tolist()


def federation(method: str, engine: str, clients: int) -> Federation:
    """A third of the clients is absent in round 2, so that its cohort has other widths than that of round 1."""
    gen, sizes = np.random.default_rng(5), sizes_of(clients)
    x, y = gen.normal(size=(sum(sizes), 5)).astype("float32"), gen.integers(0, 3, sum(sizes))
    group = np.repeat(np.arange(clients), sizes)
    data = us.from_arrays(x, y, x_test=x[:20], y_test=y[:20], group=group)
    absent = [{"clients": list(range(0, clients, 3)), "rounds": [2, 3]}]
    asked = experiment(method, engine, local=LOCAL | {"epochs": 1, "batch": BATCH}, absence=absent)
    return prepare(asked, data=data, model=network(False)).federation


@pytest.mark.parametrize(
    ("method", "clients"), [("fedavg", 40), ("fedavg", 70), ("scaffold", 40), ("scaffold", 70), ("flea-half", 40)]
)
def test_many_ragged_clients_train_in_a_stack_as_one_by_one(method: str, clients: int) -> None:
    """Two rounds in float64: the model, every client's state and loss terms, the server's state, and the ledger."""
    one_by_one, stacked = (everything(federation(method, engine, clients)) for engine in (REFERENCE, "stacked"))
    assert one_by_one.told.keys() == stacked.told.keys()
    for name, tensor in one_by_one.told.items():
        torch.testing.assert_close(stacked.told[name], tensor, msg=lambda text, n=name: f"{n}: {text}", **TOLERANCE)
    assert one_by_one.ledger == stacked.ledger


@pytest.mark.parametrize("clients", [40, 70])
def test_these_clients_end_within_a_width(clients: int) -> None:
    """Else the test above would not see what becomes of a client that is trained on after its end."""
    steps = sorted((-(-n // BATCH) for n in sizes_of(clients)), reverse=True)
    assert clients > MOST_WIDTHS
    assert any(width > sum(s > t for s in steps) for t, width in enumerate(widths(steps)))
