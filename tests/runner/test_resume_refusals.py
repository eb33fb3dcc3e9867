"""Which folders `--resume` accepts, and the errors for the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import unskew as us
from unskew.base.errors import UserError
from unskew.results import owned_folder
from unskew.results.run_folder import RunFolder

from . import toys
from .conftest import Command


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A moon run that was stopped in round 2."""
    folder = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        toys.run(folder, method="moon", phase=toys.stop_at("plan", 2))
    return folder


def test_stopped_before_its_first_checkpoint_it_starts_at_round_1(tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        toys.run(folder, method="moon", phase=toys.stop_at("plan", 1))
    assert toys.manifest(folder)["round"] == 0
    (folder / "checkpoint" / "manifest.json").unlink()  # as if killed before it was written
    owned_folder.mark(folder, "a run")
    rounds: list[int] = []
    toys.run(folder, method="moon", resume=True, phase=lambda name, round: rounds.append(round))
    toys.run(tmp_path / "uninterrupted", method="moon")
    assert rounds[0] == 1
    toys.assert_same(tmp_path / "uninterrupted", folder)


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("name", ["config.yaml", "checkpoint/manifest.json"])
def test_a_folder_without_settings_or_manifest_is_refused_by_name(
    name: str, finished: bool, resume: bool, stopped: Path
) -> None:
    """Another method could be trained over it, or it would start again at round 1."""
    if finished:
        toys.run(stopped, method="moon", resume=True)
    (stopped / name).unlink()
    before = contents(stopped)
    for method in ("moon", "fedavg"):
        with pytest.raises(UserError, match=f"{name} is missing; move {stopped} away"):
            toys.run(stopped, method=method, resume=resume)
    assert contents(stopped) == before


@pytest.mark.parametrize("name", ["about.json", "metrics.parquet", "model.safetensors"])
def test_a_finished_run_without_one_of_its_results_is_refused_by_name(name: str, stopped: Path) -> None:
    toys.run(stopped, method="moon", resume=True)
    (stopped / name).unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        toys.run(stopped, method="moon", resume=True)


def test_files_of_others_in_the_folder_of_a_run_are_left_alone(stopped: Path) -> None:
    others = [stopped / "checkpoint" / name for name in ("bert/weights", "clients/mine.safetensors", "000099.txt")]
    others += [stopped / "notes.md"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("of others")
    toys.run(stopped, method="moon", resume=True, checkpoint=toys.EAGER)
    assert {path.read_text() for path in others} == {"of others"}
    assert (toys.manifest(stopped)["finished"] or {}).get("method") == "moon"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_resume_into_a_new_folder_is_a_new_run(tmp_path: Path) -> None:
    toys.run(tmp_path / "new", resume=True)
    toys.run(tmp_path / "uninterrupted")
    toys.assert_same(tmp_path / "uninterrupted", tmp_path / "new")


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


def test_folder_with_a_run_is_refused_without_resume(stopped: Path) -> None:
    before = {p: p.read_bytes() for p in stopped.rglob("*") if p.is_file()}
    with pytest.raises(
        UserError,
        match="stopped already holds this run, stopped after round 1 of 3; add --resume to continue it",
    ):
        toys.run(stopped, method="moon")
    assert {p: p.read_bytes() for p in stopped.rglob("*") if p.is_file()} == before


def test_other_settings_are_refused_by_key(stopped: Path) -> None:
    other = {"seed": 3, "local": toys.settings()["local"] | {"lr": 0.5}}
    with pytest.raises(UserError) as refused:
        toys.run(stopped, method="moon", resume=True, **other)
    for words in ("seed was 0, is now 3", "local.lr was 0.05, is now 0.5", "--out"):
        assert words in str(refused.value)
    assert "rounds" not in str(refused.value)


def test_other_method_settings_are_refused(stopped: Path) -> None:
    with pytest.raises(UserError, match="method"):
        toys.run(stopped, method=["moon", {"moon": {"mu": 5.0}}], resume=True)


def test_settings_that_change_no_result_are_not_named(stopped: Path) -> None:
    other = {"seed": 3, "checkpoint": toys.EAGER, "engine": {"name": "loop", "workers": 2}}
    with pytest.raises(UserError) as refused:
        toys.run(stopped, method="moon", resume=True, **other)
    assert "seed" in str(refused.value)
    assert "checkpoint" not in str(refused.value)
    assert "workers" not in str(refused.value)


def files(folder: Path) -> dict[str, str]:
    """One file of each kind that a resume reads."""
    manifest = toys.manifest(folder)
    return {
        "manifest": "checkpoint/manifest.json",
        "server": f"{manifest['folder']}/server.safetensors",
        "metrics": f"{manifest['folder']}/metrics.parquet",
        "ledger": f"{manifest['folder']}/ledger.parquet",
        "client": manifest["clients"]["1"]["file"],
        "initial": "checkpoint/initial.safetensors",
    }


def flip(data: bytes) -> bytes:
    """Flip one bit in the last byte: the format stays valid, with another number."""
    return data[:-1] + bytes([data[-1] ^ 1])


KINDS = ("manifest", "server", "metrics", "ledger", "client", "initial")


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", flip], ids=["half", "empty", "bit"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_is_refused_by_name(kind: str, damage, stopped: Path) -> None:  # type: ignore[no-untyped-def]
    path = stopped / files(stopped)[kind]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError) as refused:
        toys.run(stopped, method="moon", resume=True)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_missing_file_is_refused_by_name(kind: str, stopped: Path) -> None:
    path = stopped / files(stopped)[kind]
    path.unlink()
    with pytest.raises(UserError) as refused:
        toys.run(stopped, method="moon", resume=True)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 1}', '{"format": 2}', "3"])
def test_foreign_manifest_is_refused_by_name(text: str, stopped: Path) -> None:
    path = stopped / "checkpoint" / "manifest.json"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        toys.run(stopped, method="moon", resume=True)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["rounds: [", "rounds: many", "[]", ""])
def test_damaged_config_is_refused_by_name(text: str, stopped: Path) -> None:
    (stopped / "config.yaml").write_text(text)
    with pytest.raises(UserError) as refused:
        toys.run(stopped, method="moon", resume=True)
    assert str(stopped / "config.yaml") in str(refused.value)


def test_refused_resume_leaves_the_folder_resumable(stopped: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        toys.run(stopped, method="moon", resume=True, seed=3)
    toys.run(stopped, method="moon", resume=True)
    toys.run(tmp_path / "uninterrupted", method="moon")
    toys.assert_same(tmp_path / "uninterrupted", stopped)


def test_second_process_is_refused(stopped: Path, recipe: Path, unskew: Command) -> None:
    """A lock belongs to the open file, so a second one in this process stands for another process."""
    first = RunFolder(stopped)
    result = unskew("run", recipe, "--out", stopped, "--resume")
    assert result.code == 2
    assert f"{stopped}: another process is writing this run" in result.err
    first.close()
    toys.run(stopped, method="moon", resume=True)


def test_lock_is_free_after_a_run_and_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="scaffold"):
        toys.run(tmp_path / "run", method="scaffold", local={"optimiser": "adam"})
    toys.run(tmp_path / "run")
    RunFolder(tmp_path / "run").close()


def test_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(UserError, match=r"file: expected a folder, found a file; choose another --out"):
        toys.run(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "text"


WRONG = {
    "round": ["3", -1, None],
    "folder": ["../other", "checkpoint", 3],
    "files": [{}, [], {"../../x": "0" * 64}, {"a": 1}],
    "clients": [{"x": {}}, {"0": {"file": "/etc/passwd", "hash": "0" * 64}}, []],
    "seen": [None, ["a"], 3],
    "ledger": [{}, {"bytes_up": "many", "bytes_down": 0, "holders": {}}, 5],
    "world": [[], {"data": 3}],
    "finished": [5, "yes"],
    "kept": [[], {"../model.safetensors": "0" * 64}],
    "met": [3, {"a": "b"}],
    "last_round": [[], {"sampled": "x"}],
    "messages": [[], {"one": {}}, {"1": {"../../x": "0" * 64}}],
    "readers_of_rounds": [3],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_damaged_manifest_is_refused_by_name(key: str, value: object, stopped: Path) -> None:
    """Of the resumed run and of one that is only read."""
    path = stopped / "checkpoint" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    for read in (lambda: toys.run(stopped, method="moon", resume=True), lambda: us.load(stopped)):
        with pytest.raises(UserError) as refused:
            read()
        expected = "is damaged: names no checkpoint/" if (key, value) == ("files", {}) else f"is damaged at {key}"
        assert f"{path} {expected}" in str(refused.value)
