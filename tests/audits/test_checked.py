"""Messages with correct hashes and wrong contents: refused with an error that names them, never with a traceback."""

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

from .test_audit_many import QUICK, run_digits

Change = Callable[[Path], None]
MESSAGE = "messages/000001-1"


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_digits(tmp_path_factory.mktemp("run") / "run")


def rehash(run: Path) -> None:
    """Update the hashes, as anyone with write access to the folder could."""
    path = run / "checkpoint" / "manifest.json"
    manifest = json.loads(path.read_text())
    for files in manifest["messages"].values():
        files.update({name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in files})
    path.write_text(json.dumps(manifest))


def entry(**changes: object) -> Change:
    def change(run: Path) -> None:
        path = run / f"{MESSAGE}.json"
        entries = json.loads(path.read_text())
        path.write_text(json.dumps([one | changes for one in entries]))

    return change


def tensor(name: str, value: torch.Tensor | None) -> Change:
    def change(run: Path) -> None:
        path = run / f"{MESSAGE}.safetensors"
        tensors = safetensors.torch.load_file(path)
        tensors = {k: v for k, v in tensors.items() if k != name} | ({} if value is None else {name: value})
        safetensors.torch.save_file(tensors, path)

    return change


def both(*changes: Change) -> Change:
    def change(run: Path) -> None:
        for one in changes:
            one(run)

    return change


def bias(run: Path) -> tuple[str, int]:
    tensors = safetensors.torch.load_file(run / f"{MESSAGE}.safetensors")
    name = next(k for k in tensors if k.endswith("bias"))
    return name, tensors[name].numel()


def reshaped(run: Path) -> None:
    name, size = bias(run)
    tensor(name, torch.zeros(1, size))(run)


CHANGES: dict[str, tuple[Change, str]] = {
    "no JSON": (lambda run: (run / f"{MESSAGE}.json").write_text("[{"), "000001-1.json"),
    "a word for a number": (entry(client="one"), "client"),
    "an unknown client": (entry(client=99), "client 99"),
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
def test_contents_that_do_not_fit_are_named_and_exit_with_2(
    change: Change, named: str, recorded_run: Path, tmp_path: Path, unskew: Command
) -> None:
    run = shutil.copytree(recorded_run, tmp_path / "run")
    change(run)
    rehash(run)
    result = unskew("audit", run, *QUICK)
    assert result.code == 2, result.out
    assert named in result.err
    assert "Traceback" not in result.err


def test_a_manifest_cannot_point_outside_the_folder(recorded_run: Path, tmp_path: Path, unskew: Command) -> None:
    run = shutil.copytree(recorded_run, tmp_path / "run")
    path = run / "checkpoint" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["messages"]["1"]["messages/../../secret.json"] = "0"
    path.write_text(json.dumps(manifest))
    result = unskew("audit", run, *QUICK)
    assert result.code == 2
    assert "manifest.json is damaged at messages" in result.err


def test_a_cached_result_that_does_not_fit_is_computed_again(
    recorded_run: Path, tmp_path: Path, unskew: Command
) -> None:
    run = shutil.copytree(recorded_run, tmp_path / "run")
    assert unskew("audit", run, *QUICK).code == 0
    rows = (run / "audit" / "leak.csv").read_bytes()
    for kept in (run / "audit" / "kept").iterdir():
        safetensors.torch.save_file({"x": torch.ones(1), "y": torch.ones(1), "loss": torch.ones(1)}, kept)
    assert unskew("audit", run, *QUICK).code == 0
    assert (run / "audit" / "leak.csv").read_bytes() == rows
