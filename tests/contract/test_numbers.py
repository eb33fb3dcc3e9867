"""Numbers that parts log with their loss and about the server, and broadcasts that a step does not see."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small import dataset, experiment, federation, network

import unskew as us
from unskew.base.tree import State


def test_logged_numbers_are_means_over_the_steps(engine: str, fedavg_with: Any) -> None:
    """Logging them does not change the model."""

    class LogsNumbers(us.Part):
        def loss(self, view: us.View) -> tuple[torch.Tensor, State]:
            return 0.0 * view.logits.sum(), {"step": view.clock.step.double(), "size": view.size}

    plain, fed = federation("fedavg", engine), federation(fedavg_with(LogsNumbers), engine)
    snap, report = fed.run_round(fed.start())
    assert all(torch.equal(t, snap.model[name]) for name, t in plain.run_round(plain.start())[0].model.items())
    # 11 rows in batches of 4: three steps per epoch, two epochs; 6 rows: two steps.
    assert all([*terms] == ["ce", "spy", "spy size", "spy step"] for terms in report.terms.values())
    assert {k: terms["spy step"] for k, terms in report.terms.items()} == {0: 2.5, 1: 0.5, 2: 1.5}
    assert {k: terms["spy size"] for k, terms in report.terms.items()} == pytest.approx({0: 11 / 3, 1: 1, 2: 3})


def test_a_loss_sees_broadcast_rows_only_as_a_stream(engine: str, fedavg_with: Any) -> None:
    names: list[tuple[set, set]] = []

    class RowBroadcast(us.Part):
        broadcasts = {"x": us.Artefact("synthetic", reduce="rows"), "n": us.Artefact("counts")}

        def down(self, server: us.Server) -> dict:
            return {"x": torch.ones(server.round, 5, dtype=torch.float64), "n": torch.tensor(server.round)}

        def streams(self, received: dict, part_state: State) -> dict[str, us.Stream]:
            return {"x": us.Stream(received["x"], torch.zeros(len(received["x"]), dtype=torch.int64))}

        def loss(self, view: us.View) -> None:
            names.append((set(view.received), set(view.streams)))

    fed = federation(fedavg_with(RowBroadcast), engine)
    snap, _ = fed.run_round(fed.start())
    stack = getattr(fed.engine, "_stack", None)
    fed.run_round(snap)
    assert getattr(fed.engine, "_stack", None) is stack, "more rows must not need another step"
    assert {tuple(map(tuple, one)) for one in names} == {(("n",), ("x",))}


def test_numbers_about_server_and_clients_are_metric_rows(tmp_path: Path) -> None:
    """With forked workers too, whose replies cross processes under flat names."""
    frames = []
    for workers in (1, 2):
        base = experiment("flea-half").resolved()
        settings = us.Experiment(**base | {"engine": {"name": "loop", "workers": workers}})
        run = us.run(settings, out=tmp_path / str(workers), data=dataset(), model=network(False))
        frames.append(run.metrics)
    assert frames[0].equals(frames[1])
    rows = frames[0][frames[0]["split"] == "train"]
    values = rows[(rows["who"] == "server") & (rows["round"] == 2)].set_index("metric")["value"]
    # Client 2 is absent in round 2: half of 11 and of 1 rows remain, and clients 0 and 1 got features of all three.
    assert values["flea/buffer"] == values[[f"flea/buffer/{c}" for c in range(3)]].sum() == 6 + 1
    assert (values["flea/owners"], values["flea/exposure"]) == (2, pytest.approx(100 * 6 / 9))
    of_clients = {"loss/flea", "flea/c", "flea/c by chance", "flea/c2 corrected", "flea/clf", "flea/dis"}
    assert set(rows[rows["who"] == "client-0"]["metric"]) == of_clients
