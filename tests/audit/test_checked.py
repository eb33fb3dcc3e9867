"""Messages whose hashes are right and whose contents are not: refused by name, never a traceback."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from runner.conftest import Command

from .test_audit_many import QUICK, play

Change = Callable[[Path], None]
MINE = "messages/000001-1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("run") / "run")


def rehash(run: Path) -> None:
    """As somebody would who may write to the folder."""
    path = run / "checkpoint" / "manifest.json"
    manifest = json.loads(path.read_text())
    for files in manifest["messages"].values():
        files.update({name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in files})
    path.write_text(json.dumps(manifest))


def entry(**changes: object) -> Change:
    def change(run: Path) -> None:
        path = run / f"{MINE}.json"
        entries = json.loads(path.read_text())
        path.write_text(json.dumps([one | changes for one in entries]))

    return change


def tensor(name: str, value: torch.Tensor | None) -> Change:
    def change(run: Path) -> None:
        path = run / f"{MINE}.safetensors"
        found = safetensors.torch.load_file(path)
        found = {k: v for k, v in found.items() if k != name} | ({} if value is None else {name: value})
        safetensors.torch.save_file(found, path)

    return change


def both(*changes: Change) -> Change:
    def change(run: Path) -> None:
        for one in changes:
            one(run)

    return change


def bias(run: Path) -> tuple[str, int]:
    found = safetensors.torch.load_file(run / f"{MINE}.safetensors")
    name = next(k for k in found if k.endswith("bias"))
    return name, found[name].numel()


def reshaped(run: Path) -> None:
    name, size = bias(run)
    tensor(name, torch.zeros(1, size))(run)


CHANGES: dict[str, tuple[Change, str]] = {
    "no JSON": (lambda run: (run / f"{MINE}.json").write_text("[{"), "000001-1.json"),
    "a word for a number": (entry(client="one"), "client"),
    "a client that is not there": (entry(client=99), "client 99"),
    "a client below zero": (entry(client=-1), "greater than or equal to 0"),
    "another direction": (entry(direction="sideways"), "'up' or 'down'"),
    "an unknown kind": (entry(kind="secrets"), "kind"),
    "a key too many": (entry(run="os.system"), "Extra inputs"),
    "another round": (entry(round=7), "000001-1.json"),
    "a tensor too many": (tensor("other/thing", torch.ones(2)), "in no entry"),
    "a tensor too few": (tensor("model/samples", None), "0 bytes of model/samples"),
    "another size": (tensor("model/samples", torch.ones(3)), "bytes of model/samples"),
    "another number of rows": (tensor("model/samples", torch.tensor(10**6)), "4 rows of client 1"),
    "another shape": (reshaped, "of shape"),
}


@pytest.mark.parametrize(("change", "named"), CHANGES.values(), ids=CHANGES)
def test_contents_that_do_not_fit_are_named_and_exit_2(
    change: Change, named: str, whole: Path, tmp_path: Path, unskew: Command
) -> None:
    run = shutil.copytree(whole, tmp_path / "run")
    change(run)
    rehash(run)
    said = unskew("audit", run, *QUICK)
    assert said.code == 2, said.out
    assert named in said.err
    assert "Traceback" not in said.err


def test_a_manifest_cannot_point_elsewhere(whole: Path, tmp_path: Path, unskew: Command) -> None:
    run = shutil.copytree(whole, tmp_path / "run")
    path = run / "checkpoint" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["messages"]["1"]["messages/../../secret.json"] = "0"
    path.write_text(json.dumps(manifest))
    said = unskew("audit", run, *QUICK)
    assert said.code == 2
    assert "expected files of messages" in said.err


def test_a_kept_result_that_does_not_fit_is_searched_again(whole: Path, tmp_path: Path, unskew: Command) -> None:
    run = shutil.copytree(whole, tmp_path / "run")
    assert unskew("audit", run, *QUICK).code == 0
    rows = (run / "audit" / "leak.csv").read_bytes()
    for kept in (run / "audit" / "kept").iterdir():
        safetensors.torch.save_file({"x": torch.ones(1), "y": torch.ones(1), "loss": torch.ones(1)}, kept)
    assert unskew("audit", run, *QUICK).code == 0
    assert (run / "audit" / "leak.csv").read_bytes() == rows
