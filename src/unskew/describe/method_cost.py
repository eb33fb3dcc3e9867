"""Measure a method's cost relative to FedAvg, from the ledger of a dry run with two tiny clients on any network.

The dry run has three rounds of five local epochs; the third is measured, because warm-ups and first exchanges are over
by then. Work is the floating-point operations of matrix products and convolutions, forward and backward, on clients and
server together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from unskew import models
from unskew.base.errors import UserError, expected_one_of
from unskew.base.tree import Tree, size_in_bytes
from unskew.config.experiment import Experiment
from unskew.data import from_arrays
from unskew.engines.engine import one_thread
from unskew.runner.prepare_run import prepare
from unskew.server.federation import Federation
from unskew.wire.ledger import LedgerEntry

CLIENTS, ROWS, BATCH, EPOCHS, ROUND = 2, 8, 8, 5, 3


@dataclass(frozen=True)
class Net:
    """The network and input shape on which a cost is measured."""

    model: str = "cnn"
    shape: tuple[int, ...] = (3, 32, 32)
    classes: int = 10

    def __str__(self) -> str:
        return f"{self.model} on {'x'.join(map(str, self.shape))} with {self.classes} classes"


DIGITS = Net("cnn", (1, 8, 8), 10)  # as in the recipe quick; takes a fraction of a second per method


@dataclass(frozen=True)
class MethodCost:
    """The mean cost of one client's round; bytes as in the ledger."""

    up: float
    down: float
    once: float  # bytes, both directions, that only the first round costs
    passes: float  # extra forward passes per step, besides the trained one: teachers, previous models, further batches
    flops: float
    model: int  # bytes of the model
    client_state: dict[str, int]  # bytes kept between rounds, by part
    server_state: dict[str, int]


@dataclass(frozen=True)
class RelativeCost:
    """A method's cost relative to that of FedAvg on the same network."""

    cost: MethodCost
    up: float
    down: float
    work: float

    @property
    def traffic(self) -> str:
        """Bytes up and down as multiples of FedAvg's."""
        return f"{self.up:.2f} x up, {self.down:.2f} x down"

    @property
    def effort(self) -> str:
        """Extra forward passes per step, and the work as a multiple of FedAvg's."""
        return f"{self.cost.passes:+g} passes, {self.work:.2f} x work"


def measure(method: str, net: Net = DIGITS) -> RelativeCost:
    """Measure the method and FedAvg in a dry run each."""
    with one_thread():  # the tensors are too small for several threads
        base, own = _dry_run("fedavg", net), _dry_run(method, net)
    return RelativeCost(own, own.up / base.up, own.down / base.down, own.flops / base.flops)


@lru_cache(maxsize=64)
def _dry_run(method: str, net: Net) -> MethodCost:
    calls: Counter[str] = Counter()
    federation = _federation(method, net, calls)
    snap, first_round = federation.start(), 0
    for _ in range(1, ROUND):
        snap, _report = federation.run_round(snap)
        first_round = first_round or _bytes(snap.ledger.entries)
    calls.clear()
    with FlopCounterMode(display=False) as work:
        snap, _report = federation.run_round(snap)
    entries, steps = snap.ledger.entries, CLIENTS * EPOCHS * -(-ROWS // BATCH)
    return MethodCost(
        up=_bytes(entries, "up") / CLIENTS,
        down=_bytes(entries, "down") / CLIENTS,
        once=max(first_round - _bytes(entries), 0) / CLIENTS,
        passes=calls["passes"] / steps - 1,
        flops=work.get_total_flops() / CLIENTS,
        model=size_in_bytes(federation.model.initial),
        client_state=_sizes(federation.store.get(0)),
        server_state=_sizes(snap.parts),
    )


def _federation(method: str, net: Net, calls: Counter[str]) -> Federation:
    models.check_name(net.model)
    if net.model not in models.ZOO:
        raise UserError(f"--model: {expected_one_of(models.ZOO, net.model)}")
    rng, n = np.random.default_rng(0), CLIENTS * ROWS
    x, y = rng.normal(size=(n, *net.shape)).astype("float32"), np.arange(n) % net.classes
    data = from_arrays(x, y, x_test=x, y_test=y, group=np.repeat(np.arange(CLIENTS), ROWS), classes=_names(net.classes))
    experiment = Experiment(
        method=method,
        rounds=ROUND,
        partition={"name": "group"},
        local={"epochs": EPOCHS, "batch": BATCH},
        engine={"name": "loop", "workers": 1},
        device="cpu",
    )
    blocks = _blocks(net)
    first_block = nn.Sequential(_call_counter(calls), blocks[0])
    return prepare(experiment, data=data, model=nn.Sequential(first_block, *list(blocks)[1:])).federation


def _blocks(net: Net) -> nn.Sequential:
    try:
        return models.ZOO[net.model](net.shape, net.classes)
    except (ValueError, RuntimeError, ZeroDivisionError, AssertionError) as error:
        raise UserError(f"model {net.model} does not fit rows of shape {net.shape}: {error}") from error


def _names(classes: int) -> tuple[str, ...]:
    return tuple(str(c) for c in range(classes))


def _call_counter(calls: Counter[str]) -> nn.Module:
    """An identity layer that counts forward passes; copies of the network share the counter in the closure."""

    class CallCounter(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls["passes"] += 1
            return x

    return CallCounter()


def _bytes(entries: list[LedgerEntry], direction: str = "") -> int:
    return sum(entry.bytes for entry in entries if direction in ("", entry.direction))


def _sizes(tree: Tree) -> dict[str, int]:
    return {part: size_in_bytes(state) for part, state in tree.items() if state}
