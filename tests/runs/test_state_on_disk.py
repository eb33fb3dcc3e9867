"""Runs whose clients' state rests on disk: the bytes of a run that has it in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import unskew as us
from unskew.core.home import OnDisk
from unskew.prepare import prepare

from . import toys

METHODS = ["scaffold", "moon", "fedavg"]


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.prepare.STATE_IN_MEMORY", -1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workers", [1, 2])
def test_same_bytes_as_in_memory(method: str, workers: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    keys: dict[str, Any] = {"method": method, "engine": {"name": "loop", "workers": workers}}
    toys.play(tmp_path / "memory", **keys)
    request.getfixturevalue("on_disk")
    toys.play(tmp_path / "disk", **keys)
    toys.assert_same(tmp_path / "memory", tmp_path / "disk")
    assert not (tmp_path / "disk" / ".state").exists()


def test_a_resume_goes_on_from_the_checkpoint(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Interrupted, and killed with files left behind; the first part of the run had its state in memory."""
    toys.play(tmp_path / "whole", method="scaffold")
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path / "cut", method="scaffold", phase=toys.stop_at("merge", 2), checkpoint=toys.EAGER)
    (tmp_path / "cut" / ".state").mkdir()
    (tmp_path / "cut" / ".state" / "0.safetensors").write_bytes(b"half")
    request.getfixturevalue("on_disk")
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path / "cut", method="scaffold", phase=toys.stop_at("merge", 3), resume=True)
    toys.play(tmp_path / "cut", method="scaffold", resume=True)
    toys.assert_same(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("method", METHODS)
def test_engines_agree(method: str, tmp_path: Path) -> None:
    ends = []
    for engine in ("loop", "stacked"):
        keys: dict[str, Any] = {"engine": {"name": engine, "workers": 1}, "precision": "float64", "method": method}
        made = prepare(us.Experiment(**toys.settings(**keys)), data=toys.dataset(), state_dir=tmp_path / engine)
        fed = made.federation
        assert isinstance(fed.store.home, OnDisk)
        snap = fed.start()
        for _ in range(2):
            snap, _ = fed.play(snap)
            fed.store.commit()
        ends.append(snap.model)
        fed.store.close()
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-12)
