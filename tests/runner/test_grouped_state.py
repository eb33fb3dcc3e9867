"""A part's state may have one level of groups, which storage and checkpoints preserve."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

import unskew as us
from runner import toys
from unskew.base.errors import StoppedByUser
from unskew.base.tensor_codec import to_bytes
from unskew.base.tree import Tree, flatten
from unskew.results.run_folder import RunFolder, read_manifest
from unskew.runner.run_experiment import run
from unskew.server.storage import DiskStorage


def test_state_on_disk_keeps_its_groups(tmp_path: Path) -> None:
    curv = {"u": {"0.weight": torch.arange(3.0)}, "v": {"0.weight": torch.ones(2)}}
    tree: Tree = {"curv": curv, "other": {"c": torch.ones(1)}}
    storage = DiskStorage(tmp_path / "state")
    restored = storage.store(tree).tree()
    assert flatten(restored).keys() == flatten(tree).keys()
    assert torch.equal(restored["curv"]["u"]["0.weight"], torch.arange(3.0))


def test_a_resumed_run_with_grouped_state_gives_the_same_bytes(tmp_path: Path) -> None:
    def trained_model(out: Path, rounds: int, resume: bool = False) -> bytes:
        run(
            us.Experiment(**toys.settings(method="fedcurv", rounds=rounds)), data=toys.dataset(), out=out, resume=resume
        )
        return (out / "model.safetensors").read_bytes()

    expected = trained_model(tmp_path / "uninterrupted", 4)

    def stop(done: us.Round) -> None:
        if done.round == 2:
            raise KeyboardInterrupt

    settings = toys.settings(method="fedcurv", rounds=4)
    with pytest.raises((KeyboardInterrupt, us.UserError, StoppedByUser)):
        run(us.Experiment(**settings), data=toys.dataset(), out=tmp_path / "resumed", callbacks=[stop])
    assert trained_model(tmp_path / "resumed", 4, resume=True) == expected


def test_a_checkpoint_with_other_names_is_refused_by_name(tmp_path: Path) -> None:
    """FedCurv used to save `u 0.weight` where it now saves the groups u and v."""
    out = tmp_path / "run"
    settings = toys.settings(method="fedcurv", rounds=4)

    def stop(done: us.Round) -> None:
        raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, us.UserError, StoppedByUser)):
        run(us.Experiment(**settings), data=toys.dataset(), out=out, callbacks=[stop])
    manifest = read_manifest(out)
    assert manifest is not None
    name = f"{manifest['folder']}/server.safetensors"
    old = {key.replace("curv/u//", "curv/u "): t for key, t in safetensors.torch.load_file(out / name).items()}
    folder = RunFolder(out)
    manifest["files"][name] = folder.write(name, to_bytes(old))
    del manifest["last_round"], manifest["met"]  # which were not saved at that time
    folder.write("checkpoint/manifest.json", json.dumps(manifest).encode())
    folder.close()
    with pytest.raises(us.UserError, match=r"expected u/.* in the state of part curv, found none: the checkpoint"):
        run(us.Experiment(**settings), data=toys.dataset(), out=out, resume=True)
