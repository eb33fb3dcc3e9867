"""`unskew audit` from the command line: its files, its error messages, and threat models."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import unskew as us
from runner.conftest import Command
from unskew.audits import save_audit
from unskew.audits.audit_run import Audit, audit
from unskew.audits.budget import Budget
from unskew.audits.leak import KindVerdict
from unskew.audits.page_of_audits import write_page
from unskew.audits.threat_model import SERVER, SUM_ONLY, THREATS
from unskew.audits.verdict import strongest
from unskew.config import recipe as recipes
from unskew.reproductions import record_audits
from unskew.runner.prepare_run import read_data

from .victim import images

TEN = 10
QUICK = ("--attack", "ig", "--iterations", "3", "--restarts", "2", "--images", "2", "--device", "cpu")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten clients with one image each that take one step of plain SGD."""
    folder = tmp_path_factory.mktemp("recipe")
    x, y = (255 * images(TEN).numpy()).round().astype("uint8"), np.arange(TEN)
    np.savez(folder / "rows.npz", x=np.concatenate([x, x]), y=np.concatenate([y, y]), group=np.r_[y, y])
    keys = {
        "data": {"name": str(folder / "rows.npz"), "test": 0.5},
        "model": "lenet",
        "partition": {"name": "group"},
        "rounds": 1,
        "local": {"steps": 1, "batch": 1, "lr": 0.1, "momentum": 0, "weight_decay": 0},
        "record": {"rounds": [1]},
        "device": "cpu",
        "engine": {"name": "loop", "workers": 1},
    }
    path = folder / "ten.yaml"
    path.write_text(yaml.safe_dump(keys))
    return path


@pytest.fixture(scope="module")
def run(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    us.run(recipes.load(str(recipe), [])[1], out=out)
    return out


def test_an_audit_writes_leaks_pictures_and_a_page(run: Path, unskew: Command) -> None:
    result = unskew("audit", run, *QUICK)
    assert result.code == 0, result.err
    assert str(SERVER) in result.out
    assert "counts: sent in clear. model/samples: each client's counts left the clients as they are" in result.out
    assert "round 1 of 1: batches of 1, 1 local step, learning rate 0.1, lenet" in result.out
    assert "lenet with a test accuracy of " in result.out
    assert "2 tries of 3 iterations" in result.out
    with (run / "audit" / "leak.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = "method,defence,attack,dataset,image,restart,metric,space,value,seed,device,commit"
    columns += ",attacker,restarts,iterations"
    assert list(rows[0]) == columns.split(",")
    assert {(r["metric"], r["restart"]) for r in rows if r["space"] == "unit"} == {("mse", "0"), ("mse", "1")}
    assert {r["value"] for r in rows if r["attack"] == "labels"} == {"100.0"}
    assert "does not know labels, draws" in (run / "audit" / "audit.html").read_text()
    (folder,) = (run / "audit" / "attacks").iterdir()
    about = json.loads((folder / "audit.json").read_text())
    assert about["threat"] == str(SERVER)
    again = save_audit.read_all(run)[-1]
    (shown,) = again.pictures
    assert shown.attack == "ig"
    assert shown.true.shape == shown.recovered.shape == (2, 1, 8, 8)
    assert again.verdicts[0].kind == "counts"


def test_pictures_show_the_rows_with_their_indices(run: Path, unskew: Command) -> None:
    assert unskew("audit", run, *QUICK).code == 0
    (shown,) = save_audit.read_all(run)[-1].pictures
    rows = read_data(us.load(run).config, None).train.x[list(shown.images)]
    assert np.allclose(shown.true.numpy(), rows.numpy() / 255, atol=1e-6)


@pytest.mark.parametrize("how", ["missing", "truncated", "tampered"])
def test_a_broken_message_file_is_named_and_exits_with_2(how: str, run: Path, tmp_path: Path, unskew: Command) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    path = copy / "messages" / "000001-3.safetensors"
    data = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes(data[: len(data) // 2] if how == "truncated" else data[:-1] + bytes([data[-1] ^ 1]))
    result = unskew("audit", copy, *QUICK)
    assert result.code == 2
    assert "000001-3.safetensors" in result.err


MISTAKES = {
    "attack": (["--attack", "idgl"], ["idgl", "idlg"]),
    "threat": (["--threat", "sumonly"], ["sumonly", "sum-only"]),
    "knowledge": (["--knows", "label"], ["label", "labels"]),
}


@pytest.mark.parametrize("words", MISTAKES.values(), ids=MISTAKES)
def test_a_misspelt_option_is_named_with_a_suggestion(
    words: tuple[list[str], list[str]], run: Path, unskew: Command
) -> None:
    result = unskew("audit", run, *words[0])
    assert result.code == 2
    assert all(word in result.err for word in words[1])


def test_a_run_without_recorded_messages_is_refused_with_the_option_to_record_them(
    recipe: Path, tmp_path: Path, unskew: Command
) -> None:
    assert unskew("run", recipe, "record={}", "--out", tmp_path / "bare").code == 0
    result = unskew("audit", tmp_path / "bare", *QUICK)
    assert result.code == 2
    assert "record.rounds='[1]'" in result.err


def test_the_sum_needs_the_messages_of_all_clients(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    assert unskew("run", recipe, "record={rounds: [1], clients: [0, 1]}", "--out", tmp_path / "two").code == 0
    result = unskew("audit", tmp_path / "two", *QUICK, "--threat", "sum-only")
    assert result.code == 2
    assert "client 2" in result.err


def test_an_interrupted_audit_continues_from_its_cached_results(run: Path) -> None:
    budget = Budget(("ig",), SERVER, images=3, iterations=4, restarts=1, at_once=1, seed=8)
    seen: list[int] = []

    def stop(stage: str, done: int, total: int) -> None:
        seen.append(done)
        if done == 6:  # in the second of three messages
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(run, budget, device="cpu", report=stop)
    kept = set((run / "audit" / "kept").iterdir())
    again: list[tuple[int, int]] = []
    continued = audit(run, budget, device="cpu", report=lambda stage, done, total: again.append((done, total)))
    assert len(set((run / "audit" / "kept").iterdir()) - kept) == 2
    assert (1, 12) not in again
    cached = audit(run, budget, device="cpu", report=lambda stage, done, total: None)
    assert cached.leaks == continued.leaks


def test_the_sum_leaks_less_than_single_messages(run: Path) -> None:
    """A cohort of ten, with the same attack and budget on each message and on their sum."""
    best = {}
    for threat in (SERVER, SUM_ONLY):
        budget = Budget(("ig",), threat.with_knowledge(("labels",)), images=TEN, iterations=60, restarts=1)
        result = audit(run, budget, device="cpu")
        rows = [leak.value for leak in result.leaks if leak.metric == "psnr"]
        assert len(rows) == TEN
        best[threat.name] = np.mean(rows)
    assert best["server"] > 20
    assert best["server"] > best["sum-only"] + 6


@pytest.mark.parametrize("threat", THREATS.values(), ids=THREATS)
def test_a_threat_model_states_what_it_sees_and_knows(threat: object) -> None:
    text = str(threat)
    assert "sees" in text
    assert all(word in text for word in ("model", "labels", "batch", "steps", "batchnorm", "draws"))


def test_a_weaker_audit_does_not_hide_a_stronger_one(run: Path, tmp_path: Path, unskew: Command) -> None:
    """All audits stay; the strongest verdict is shown with its budget, and what else was tried."""
    mine = tmp_path / "mine"
    shutil.copytree(run, mine, ignore=shutil.ignore_patterns("audit"))
    strong = ("--attack", "dlg", "--iterations", "40", "--restarts", "2", "--images", "2", "--device", "cpu")
    first = unskew("audit", mine, *strong, "--membership", "none")
    assert "weights: recovered. " in first.out, first.out
    weak = ("--attack", "ig", "--iterations", "1", "--restarts", "1", "--images", "2", "--device", "cpu")
    second = unskew("audit", mine, *weak, "--membership", "none")
    assert "weights: not recovered, at this budget. " in second.out
    assert "weights, by an earlier audit: recovered. " in second.out
    assert [each.budget.iterations for each in save_audit.read_all(mine)] == [40, 1]
    (weights,) = (v for v in strongest(a.verdicts for a in save_audit.read_all(mine)) if v.kind == "weights")
    assert (weights.state, "2 tries of 40 iterations" in weights.words) == ("recovered", True)
    (tried,) = weights.also
    assert "1 try of 1 iterations" in tried
    page = (mine / "audit" / "audit.html").read_text()
    for words in (
        "2 images were recovered",
        "Also tried. ",
        "2 tries of 40 iterations",
        "1 try of 1 iterations",
        "batches of 1, 1 local step",
    ):
        assert words in page, words
    with (mine / "audit" / "leak.csv").open() as file:
        assert {(row["restarts"], row["iterations"]) for row in csv.DictReader(file) if row["metric"] == "psnr"} == {
            ("2", "40"), ("1", "1"),
        }  # fmt: skip
    unskew("audit", mine, *weak, "--membership", "none")
    assert len(save_audit.read_all(mine)) == 2, "the same audit again replaces itself"


def test_an_audit_of_the_layout_with_one_audit_is_kept(run: Path, tmp_path: Path) -> None:
    """Version 0.1 kept the last audit alone, directly under audit/."""
    mine = tmp_path / "mine"
    shutil.copytree(run, mine, ignore=shutil.ignore_patterns("audit"))
    old = audit(mine, Budget(("ig",), images=2, iterations=3, restarts=1, membership="none"), device="cpu")
    save_audit.write(old, "cpu")
    (folder,) = (mine / "audit" / "attacks").iterdir()
    for file in folder.iterdir():
        shutil.move(file, mine / "audit" / file.name)
    folder.rmdir()
    assert [each.budget for each in save_audit.read_all(mine)] == [old.budget]
    fresh = replace(old, budget=replace(old.budget, iterations=4))
    save_audit.write(fresh, "cpu")
    assert [each.budget.iterations for each in save_audit.read_all(mine)] == [3, 4]
    assert {path.name for path in (mine / "audit").iterdir() if path.is_file()} == {"leak.csv"}


def quick_audit(run: Path, **changes: object) -> Audit:
    """A saved audit by IG with three iterations."""
    settings = {"attacks": ("ig",), "images": 2, "iterations": 3, "restarts": 1, "membership": "loss"} | changes
    result = audit(run, Budget(**settings), device="cpu")  # type: ignore[arg-type]
    save_audit.write(result, "cpu")
    return result


def copied(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "mine", ignore=shutil.ignore_patterns("audit"))
    return tmp_path / "mine"


def test_a_damaged_audit_is_left_out_with_a_warning_and_blocks_no_other(run: Path, tmp_path: Path) -> None:
    mine = copied(run, tmp_path)
    quick_audit(mine)
    (folder,) = (mine / "audit" / "attacks").iterdir()
    (folder / "ig.safetensors").unlink()
    with pytest.warns(UserWarning, match="left out: .*expected the files of an audit"):
        assert save_audit.read_all(mine) == []
    second = quick_audit(mine, iterations=4)
    with pytest.warns(UserWarning, match="left out"):
        assert [each.budget for each in save_audit.read_all(mine)] == [second.budget]
    quick_audit(mine)
    assert [each.budget.iterations for each in save_audit.read_all(mine)] == [3, 4], "the same audit again mends it"


def test_recorded_rows_are_those_of_the_default_server_that_tried_hardest(run: Path, tmp_path: Path) -> None:
    mine = copied(run, tmp_path)
    quick_audit(mine, threat=SUM_ONLY, iterations=9)
    hard, _ = quick_audit(mine, iterations=5), quick_audit(mine, iterations=2)
    cell = SimpleNamespace(experiment=us.load(mine).config)
    (path,) = record_audits.record([(cell, us.load(mine))], tmp_path / "leak.csv")  # type: ignore[list-item]
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "psnr"]
    expected = [f"{leak.value:.6g}" for leak in hard.leaks if leak.metric == "psnr"]
    assert sorted(row["value"] for row in rows) == sorted(expected)


def test_attackers_and_unrolling_are_in_the_names_where_they_differ(run: Path, tmp_path: Path) -> None:
    mine = copied(run, tmp_path)
    audits = [quick_audit(mine), quick_audit(mine, threat=SUM_ONLY), quick_audit(mine, max_unrolled_steps=1)]
    assert "at most 1 steps unrolled" in next(v.words for v in audits[2].verdicts if v.kind == "weights")
    page = write_page(save_audit.read_all(mine), tmp_path / "page.html").read_text()
    assert re.search(r"loss threshold \([^)]*sum-only\)", page)
    assert re.search(r"loss threshold \([^)]*server\)", page)
    assert "ig (up to 1 steps unrolled, server)" in page


def test_verdicts_of_older_versions_get_the_states_of_today() -> None:
    """They called labels, raw rows and a stamped square recovered, and had no order among themselves."""
    for words, before, now in (
        ("flea/labels: the labels themselves were sent as they are", "recovered", "leaked"),
        (
            "flea/features: 0 of 16 images recovered at 20 dB or more; the marker was identified",
            "recovered",
            "identified",
        ),
        ("average/weights: 10 of 16 images recovered at 20 dB or more", "recovered", "recovered"),
        ("model/samples: unskew implements no attack on this kind", "unknown", "leaked"),
        ("curv/du: unskew implements no attack on this kind", "unknown", "unattackable"),
        ("average/weights: no attack on updates was requested", "unknown", "unknown"),
    ):
        assert save_audit._verdict({"kind": "x", "state": before, "words": words, "method": ""}).state == now, words


def test_more_images_recovered_is_the_stronger_result() -> None:
    one = KindVerdict("weights", "recovered", "1 of 1 images", "", (1, 1.0, 21.0))
    many = KindVerdict("weights", "recovered", "15 of 16 images", "", (15, 15 / 16, 40.0))
    assert strongest([[one], [many]])[0].words == "15 of 16 images"
    assert strongest([[many], [one]])[0].also == ("recovered: 1 of 1 images",)
