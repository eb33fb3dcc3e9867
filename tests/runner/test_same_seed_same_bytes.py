"""Results depend on the seed only, not on workers, folder, clock or earlier runs in this process."""

from pathlib import Path

import pytest
import torch

import unskew as us

from . import toys


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "moon"])
def test_same_bytes_twice_and_with_two_workers(method: str, tmp_path: Path) -> None:
    toys.run(tmp_path / "one", method=method)
    torch.manual_seed(99)
    torch.rand(7)
    toys.run(tmp_path / "other" / "again", method=method)
    toys.run(tmp_path / "two", method=method, engine={"name": "loop", "workers": 2})
    toys.assert_same(tmp_path / "one", tmp_path / "other" / "again")
    toys.assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("engine", ["plain", "stacked"])
def test_same_bytes_twice_in_every_engine(engine: str, tmp_path: Path) -> None:
    for folder in ("one", "again"):
        toys.run(tmp_path / folder, method="moon", engine=engine)
    toys.assert_same(tmp_path / "one", tmp_path / "again")


def test_digits_with_two_workers(tmp_path: Path) -> None:
    shards = {"name": "shards", "clients": 5, "per_client": 2}
    for workers in (1, 2):
        engine = {"name": "loop", "workers": workers}
        changes = {"data": "digits", "rounds": 2, "partition": shards, "engine": engine}
        us.run(us.Experiment(**toys.settings(**changes)), out=tmp_path / str(workers))
    toys.assert_same(tmp_path / "1", tmp_path / "2")


def test_another_seed_gives_other_numbers(tmp_path: Path) -> None:
    toys.run(tmp_path / "0", seed=0)
    toys.run(tmp_path / "1", seed=1)
    assert (tmp_path / "0" / "model.safetensors").read_bytes() != (tmp_path / "1" / "model.safetensors").read_bytes()


def test_callers_random_state_is_untouched(tmp_path: Path) -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    toys.run(tmp_path / "run")
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_metrics_do_not_depend_on_folder_or_time(tmp_path: Path) -> None:
    toys.run(tmp_path / "run")
    text = (tmp_path / "run" / "metrics.parquet").read_bytes()
    assert str(tmp_path).encode() not in text
    assert set(toys.rows_of(tmp_path / "run")["metric"].str.split("/").str[0]) == {"accuracy", "loss", "predicted"}
