"""Bytes in the ledger, and cohorts with empty, absent and refused clients; validation rows and evaluation."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import safetensors.torch
import torch

import unskew as us
from runner import toys

MESSAGE = 8  # bytes of the number of rows in every message
GROUP = {"name": "group"}  # one client per group
SCARCE = {"name": "dirichlet", "clients": 8, "alpha": 0.01, "seed": 1}


def size(folder: Path) -> int:
    """The size of the model in bytes."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors").values()
    return sum(t.numel() * t.element_size() for t in tensors)


def ledger_rows(run: us.Run, **values: object) -> pd.DataFrame:
    """Entries of the ledger with these values."""
    rows = run.ledger
    for column, value in values.items():
        rows = rows[rows[column] == value]
    return rows


@pytest.mark.parametrize(("participation", "cohort"), [(1.0, 3), (0.7, 2), (0.1, 1)])
def test_fedavg_sends_the_model_both_ways(participation: float, cohort: int, tmp_path: Path) -> None:
    run = toys.run(tmp_path, participation=participation)
    messages = 3 * cohort
    assert run.summary.bytes_down == messages * size(tmp_path)
    assert run.summary.bytes_up == messages * (size(tmp_path) + MESSAGE)
    assert size(tmp_path) == 4 * (toys.WIDTH * 64 + 64 + 64 * toys.CLASSES + toys.CLASSES)


def test_scaffold_doubles_both_ways(tmp_path: Path) -> None:
    run = toys.run(tmp_path, method="scaffold")
    assert run.summary.bytes_down == 9 * 2 * size(tmp_path)
    assert run.summary.bytes_up == 9 * (2 * size(tmp_path) + MESSAGE)
    assert set(run.ledger["kind"]) == {"weights", "control", "counts"}


def test_ledger_lists_sender_artefact_and_round(tmp_path: Path) -> None:
    run = toys.run(tmp_path, method="fedavg+toy-share")
    shared = ledger_rows(run, part="toy-share", direction="up")
    assert shared[["round", "client"]].to_numpy().tolist() == [[t, k] for t in (1, 2, 3) for k in (0, 1, 2)]
    assert set(shared["phase"]) == {"after merge"}
    assert set(shared["kind"]) == {"raw"}
    assert set(shared["bytes"]) == {2 * toys.WIDTH * 4}
    broadcast = ledger_rows(run, part="toy-share", direction="down")
    assert set(broadcast["round"]) == {2, 3}
    assert set(broadcast["bytes"]) == {6 * toys.WIDTH * 4}


def test_model_is_sent_again_for_an_exchange_that_needs_it(tmp_path: Path) -> None:
    run = toys.run(tmp_path, method="fedavg+toy-share")
    assert len(ledger_rows(run, part="model", direction="down", phase="after merge")) == 9
    assert len(ledger_rows(run, part="model", direction="down", phase="train")) == 9


def test_exchange_that_needs_no_model_gets_none(tmp_path: Path) -> None:
    run = toys.run(tmp_path, method="fedavg+toy-newcomers")
    assert len(ledger_rows(run, part="model", direction="down")) == 9
    greetings = ledger_rows(run, part="toy-newcomers")
    assert greetings[["round", "client"]].to_numpy().tolist() == [[1, 0], [1, 1], [1, 2]]


def test_newcomers_exchange_at_low_participation(tmp_path: Path) -> None:
    run = toys.run(tmp_path, method="fedavg+toy-newcomers", participation=0.4, rounds=12)
    greetings = ledger_rows(run, part="toy-newcomers")
    first = ledger_rows(run, part="model", direction="down").groupby("client")["round"].min()
    assert greetings.set_index("client")["round"].sort_index().to_dict() == first.to_dict()


def test_lasting_broadcast_is_sent_once_until_it_changes(tmp_path: Path) -> None:
    run = toys.run(tmp_path, method="fedavg+toy-lasting", rounds=5)
    table = ledger_rows(run, part="toy-lasting")
    assert table[["round", "client"]].to_numpy().tolist() == [[t, k] for t in (1, 4) for k in (0, 1, 2)]
    assert set(table["bytes"]) == {16}


def test_lasting_broadcast_reaches_each_client_at_its_first_round(tmp_path: Path) -> None:
    run = toys.run(tmp_path, method="fedavg+toy-lasting", rounds=3, participation=0.4)
    first = ledger_rows(run, part="model", direction="down").groupby("client")["round"].min()
    assert ledger_rows(run, part="toy-lasting").set_index("client")["round"].sort_index().to_dict() == first.to_dict()


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_empty_clients_get_the_model_and_send_nothing(engine: str, tmp_path: Path) -> None:
    run = toys.run(tmp_path, method="scaffold", partition=SCARCE, engine={"name": engine, "workers": 1})
    rows = toys.rows_of(tmp_path, "clients").groupby("client")["rows"].sum()
    empty = set(rows[rows == 0].index)
    assert 0 < len(empty) < 8
    down, up = (ledger_rows(run, part="model", direction=way).groupby("client").size() for way in ("down", "up"))
    assert down.to_dict() == dict.fromkeys(range(8), 3)
    assert up.to_dict() == dict.fromkeys(set(range(8)) - empty, 3)
    assert not set(run.metrics["who"]) & {f"client-{k}" for k in empty}


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_reply_that_is_not_finite_is_refused_and_recorded(engine: str, tmp_path: Path) -> None:
    engine_of = {"name": engine, "workers": 1}
    run = toys.run(
        tmp_path / "nan", data=toys.grouped(), method="scaffold+toy-nan-message", partition=GROUP, engine=engine_of
    )
    refused = run.metrics[run.metrics["metric"] == "dropped"]
    assert refused[["round", "who"]].to_numpy().tolist() == [[t, "client-2"] for t in (1, 2, 3)]
    state = safetensors.torch.load_file(tmp_path / "nan" / "model.safetensors")
    assert all(bool(torch.isfinite(t).all()) for t in state.values())
    server = run.metrics[run.metrics["who"] == "server"]
    assert server["value"].notna().all()
    assert set(toys.manifest(tmp_path / "nan")["clients"]) == {"0", "1"}


def test_refused_client_counts_as_absent(tmp_path: Path) -> None:
    """The refused reply does not change the mean of the others."""
    toys.run(tmp_path / "nan", data=toys.grouped(), method="fedavg+toy-nan-message", partition=GROUP)
    absent = [{"clients": [2], "rounds": [1, 4]}]
    toys.run(tmp_path / "absent", data=toys.grouped(), method="fedavg+toy-nan-message", partition=GROUP, absence=absent)
    one, other = (safetensors.torch.load_file(tmp_path / name / "model.safetensors") for name in ("nan", "absent"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_messages_of_a_refused_client_are_in_the_ledger(tmp_path: Path) -> None:
    run = toys.run(tmp_path, data=toys.grouped(), method="fedavg+toy-nan-message", partition=GROUP)
    assert len(ledger_rows(run, client=2, direction="up", artefact="weights")) == 3


def test_share_that_is_not_finite_is_refused_recorded_and_in_the_ledger(tmp_path: Path) -> None:
    """The ledger lists a message even if the server refuses it."""
    run = toys.run(tmp_path, data=toys.grouped(), method="fedavg+toy-nan-share", partition=GROUP, rounds=1)
    assert ledger_rows(run, part="toy-nan-share")["client"].tolist() == [0, 1, 2]
    assert run.metrics[run.metrics["metric"] == "dropped"]["who"].tolist() == ["client-2"]


def test_validation_rows_are_taken_from_the_training_rows(tmp_path: Path) -> None:
    run = toys.run(tmp_path, rounds=2)
    plain = toys.rows_of(tmp_path, "clients")["rows"].sum()
    assert set(run.metrics["split"]) == {"test", "train"}
    held = toys.run(tmp_path / "held", rounds=2, hold_out=0.25)
    fewer = toys.rows_of(tmp_path / "held", "clients")["rows"].sum()
    assert (plain, fewer) == (48, 36)
    rows = held.metrics[(held.metrics["split"] == "validation") & (held.metrics["metric"].str.startswith("predicted/"))]
    assert set(rows.groupby("round")["value"].sum()) == {12.0}
    assert set(rows["round"]) == {0, 1, 2}


def test_evaluate_every_other_round_and_the_last(tmp_path: Path) -> None:
    run = toys.run(tmp_path / "some", rounds=5, evaluate={"every": 2})
    toys.run(tmp_path / "all", rounds=5)
    server = run.metrics[run.metrics["who"] == "server"]
    assert sorted(set(server["round"])) == [0, 2, 4, 5]
    assert (tmp_path / "some" / "model.safetensors").read_bytes() == (
        tmp_path / "all" / "model.safetensors"
    ).read_bytes()


def test_absent_clients_do_not_train(tmp_path: Path) -> None:
    absent = [{"clients": [0, 1], "rounds": [2, 4]}, {"clients": [1], "rounds": [1, 2]}]
    run = toys.run(tmp_path, rounds=5, absence=absent)
    trained = ledger_rows(run, direction="up", artefact="weights").groupby("round")["client"].apply(list).to_dict()
    assert trained == {1: [0, 2], 2: [2], 3: [2], 4: [0, 1, 2], 5: [0, 1, 2]}
    assert ledger_rows(run, direction="down").groupby("round")["client"].apply(list).to_dict() == trained


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("method", ["fedavg", "fedavgm", "scaffold", "fedavg+toy-share", "fedavg+toy-newcomers"])
def test_round_without_clients_does_not_change_the_model(method: str, engine: str, tmp_path: Path) -> None:
    absent = [{"clients": [0, 1, 2], "rounds": [2, 3]}]
    run = toys.run(tmp_path, method=method, absence=absent, engine={"name": engine, "workers": 1})
    server = run.metrics[run.metrics["who"] == "server"].set_index("round")
    one, two, three = (server.loc[t, "value"].tolist() for t in (1, 2, 3))
    assert one == two
    assert two != three
    assert sorted(set(run.ledger["round"])) == [1, 3]


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("method", ["fedavg", "fedavg+toy-share", "fedavg+toy-newcomers"])
def test_run_without_clients_in_any_round(method: str, engine: str, tmp_path: Path) -> None:
    absent = [{"clients": [0, 1, 2], "rounds": [1, 4]}]
    run = toys.run(tmp_path, method=method, absence=absent, engine={"name": engine, "workers": 1})
    initial = safetensors.torch.load_file(tmp_path / "checkpoint" / "initial.safetensors")
    final = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(initial[name], final[name]) for name in initial)
    assert (run.summary.bytes_up, run.summary.bytes_down, len(run.ledger)) == (0, 0, 0)
