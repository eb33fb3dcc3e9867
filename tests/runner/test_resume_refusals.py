"""What `--resume` accepts, and what it refuses by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unskew.base.errors import UserError
from unskew.results.run_folder import RunFolder

from . import toys
from .conftest import Command


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A moon run that was stopped in round 2."""
    folder = tmp_path / "half"
    with pytest.raises(KeyboardInterrupt):
        toys.play(folder, method="moon", phase=toys.stop_at("plan", 2))
    return folder


def test_without_a_checkpoint_it_starts_at_round_1(half: Path, tmp_path: Path) -> None:
    (half / "checkpoint" / "manifest.json").unlink()
    told: list[int] = []
    toys.play(half, method="moon", resume=True, phase=lambda name, round: told.append(round))
    toys.play(tmp_path / "whole", method="moon")
    assert told[0] == 1
    toys.assert_same(tmp_path / "whole", half)


def test_resume_into_a_new_folder_is_a_new_run(tmp_path: Path) -> None:
    toys.play(tmp_path / "new", resume=True)
    toys.play(tmp_path / "whole")
    toys.assert_same(tmp_path / "whole", tmp_path / "new")


def test_finished_run_prints_its_summary_without_data(
    recipe: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = unskew("run", recipe, "--out", tmp_path / "run", "--json")
    monkeypatch.setattr("unskew.data.load", lambda *a, **k: pytest.fail("data were loaded"))
    again = unskew("run", recipe, "--out", tmp_path / "run", "--json", "--resume")
    assert (again.code, again.out) == (0, first.out)
    words = unskew("run", recipe, "--out", tmp_path / "run", "--resume")
    assert words.code == 0
    assert f"final {json.loads(first.out)['final']:.2f} %" in words.out


def test_folder_with_a_run_is_refused_without_resume(half: Path) -> None:
    before = {p: p.read_bytes() for p in half.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=r"half holds a run already; add --resume .* or choose another --out"):
        toys.play(half, method="moon")
    assert {p: p.read_bytes() for p in half.rglob("*") if p.is_file()} == before


def test_other_settings_are_refused_by_key(half: Path) -> None:
    other = {"seed": 3, "local": toys.settings()["local"] | {"lr": 0.5}}
    with pytest.raises(UserError) as refused:
        toys.play(half, method="moon", resume=True, **other)
    for words in ("seed was 0, is now 3", "local.lr was 0.05, is now 0.5", "--out"):
        assert words in str(refused.value)
    assert "rounds" not in str(refused.value)


def test_other_method_settings_are_refused(half: Path) -> None:
    with pytest.raises(UserError, match="method"):
        toys.play(half, method=["moon", {"moon": {"mu": 5.0}}], resume=True)


def test_settings_that_change_no_result_are_not_blamed(half: Path) -> None:
    other = {"seed": 3, "checkpoint": toys.EAGER, "engine": {"name": "loop", "workers": 2}}
    with pytest.raises(UserError) as refused:
        toys.play(half, method="moon", resume=True, **other)
    assert "seed" in str(refused.value)
    assert "checkpoint" not in str(refused.value)
    assert "workers" not in str(refused.value)


def files(folder: Path) -> dict[str, str]:
    """Every kind of file a resume reads."""
    made = toys.manifest(folder)
    return {
        "manifest": "checkpoint/manifest.json",
        "server": f"{made['folder']}/server.safetensors",
        "metrics": f"{made['folder']}/metrics.parquet",
        "ledger": f"{made['folder']}/ledger.parquet",
        "client": made["clients"]["1"]["file"],
        "initial": "checkpoint/initial.safetensors",
    }


def flip(data: bytes) -> bytes:
    """One bit in the last byte: still a file of its kind, with another number in it."""
    return data[:-1] + bytes([data[-1] ^ 1])


KINDS = ("manifest", "server", "metrics", "ledger", "client", "initial")


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", flip], ids=["half", "empty", "bit"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_is_refused_by_name(kind: str, damage, half: Path) -> None:  # type: ignore[no-untyped-def]
    path = half / files(half)[kind]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError) as refused:
        toys.play(half, method="moon", resume=True)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_missing_file_is_refused_by_name(kind: str, half: Path) -> None:
    path = half / files(half)[kind]
    path.unlink()
    with pytest.raises(UserError) as refused:
        toys.play(half, method="moon", resume=True)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 1}', '{"format": 2}', "3"])
def test_foreign_manifest_is_refused_by_name(text: str, half: Path) -> None:
    path = half / "checkpoint" / "manifest.json"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        toys.play(half, method="moon", resume=True)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["rounds: [", "rounds: many", "[]", ""])
def test_damaged_config_is_refused_by_name(text: str, half: Path) -> None:
    (half / "config.yaml").write_text(text)
    with pytest.raises(UserError) as refused:
        toys.play(half, method="moon", resume=True)
    assert str(half / "config.yaml") in str(refused.value)


def test_refused_resume_leaves_the_folder_resumable(half: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        toys.play(half, method="moon", resume=True, seed=3)
    toys.play(half, method="moon", resume=True)
    toys.play(tmp_path / "whole", method="moon")
    toys.assert_same(tmp_path / "whole", half)


def test_second_process_is_refused(half: Path, recipe: Path, unskew: Command) -> None:
    """A lock belongs to the open file, so a second one in this process stands for another process."""
    first = RunFolder(half)
    said = unskew("run", recipe, "--out", half, "--resume")
    assert said.code == 2
    assert f"{half}: another process is writing this run" in said.err
    first.close()
    toys.play(half, method="moon", resume=True)


def test_lock_is_free_after_a_run_and_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="scaffold"):
        toys.play(tmp_path / "run", method="scaffold", local={"optimiser": "adam"})
    toys.play(tmp_path / "run")
    RunFolder(tmp_path / "run").close()


def test_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"file: cannot be written .*choose another --out"):
        toys.play(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
