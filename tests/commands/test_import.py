"""A method, model and dataset of one's own, by `--import` and `imports:`, in every command and in worker processes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import unskew as us
from runner.conftest import Command
from unskew import data, models
from unskew.config import user_code
from unskew.protocol import method_registry

MINE = '''
import numpy as np
import torch
from torch import nn

import unskew as us
from pydantic import Field
from neighbour import LARGEST


@us.part("test-shrink")
class Shrink(us.Part):
    """Pull the weights towards zero."""

    strength: float = Field(0.01, ge=0, le=LARGEST, description="factor of the penalty")

    def loss(self, view):
        return self.strength * sum(w.pow(2).sum() for w in view.parameters.values())


us.method("test-fedshrink", "fedavg", "test-shrink")


@us.model("test-tiny")
def tiny(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))


@us.dataset("test-ward")
def ward(request):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    x = (rng.normal(size=(60, 4)) + 2 * np.eye(3, 4)[y]).astype("float32")
    return us.from_arrays(x, y, test=0.2, name="test-ward")
'''
SETTINGS = (
    "rounds=2",
    "data=test-ward",
    "model=test-tiny",
    "partition={name: iid, clients: 3}",
    "local.epochs=1",
    "local.batch=8",
    "engine.workers=1",
    "record.rounds=[1]",
)
OWN = ("method=test-fedshrink", *SETTINGS)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "neighbour.py").write_text("LARGEST = 1.0\n")
    (tmp_path / "code" / "mine.py").write_text(MINE)
    return tmp_path / "code" / "mine.py"


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Call it to stand in a process that has imported nothing of the user's."""
    method_registry.method_names()
    tables: list[dict] = [method_registry.PARTS, method_registry.METHODS, models.ZOO, data._LOADERS]
    before = [dict(table) for table in tables]
    modules, path = set(sys.modules), list(sys.path)

    def restore() -> None:
        for table, old in zip(tables, before):
            table.clear()
            table.update(old)
        for name in set(sys.modules) - modules:
            if name.startswith(user_code.PREFIX) or name == "neighbour":
                del sys.modules[name]
        sys.path[:] = path
        user_code._import_file.cache_clear()
        user_code._source.cache_clear()
        user_code._BYTES.clear()
        user_code._NEIGHBOURS.clear()

    yield restore
    restore()


@pytest.fixture
def finished(mine: Path, forget: Callable[[], None], tmp_path: Path, unskew: Command) -> Path:
    """A finished run with an own method, model and dataset, none of which is registered any more."""
    done = unskew("run", "quick", *OWN, "--import", mine, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    forget()
    return tmp_path / "run"


def test_the_file_is_recorded_with_its_hash_and_a_copy(finished: Path, mine: Path) -> None:
    sha = hashlib.sha256(mine.read_bytes()).hexdigest()
    provides = ["part test-shrink", "model test-tiny", "dataset test-ward"]
    recorded = yaml.safe_load((finished / "config.yaml").read_text())["imports"]
    helper = hashlib.sha256((mine.parent / "neighbour.py").read_bytes()).hexdigest()
    assert recorded == [
        {"file": "mine.py", "sha256": sha, "provides": provides},
        {"file": "neighbour.py", "sha256": helper, "provides": []},
    ]
    assert (finished / "imports" / f"neighbour-{helper[:8]}.py").read_text() == "LARGEST = 1.0\n"
    assert (finished / "imports" / f"mine-{sha[:8]}.py").read_text() == MINE


def test_a_finished_folder_is_readable_without_the_file(finished: Path, tmp_path: Path, unskew: Command) -> None:
    run = us.load(finished)
    assert (run.config.label, run.config.model.name) == ("test-fedshrink", "test-tiny")
    assert len(run.metrics) > 0
    report = unskew("report", finished, "--out", tmp_path / "page.html")
    assert report.code == 0, report.err
    assert "test-fedshrink" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("words", [("audit", "--attack", "ig", "--iterations", "2"), ("export",)])
def test_what_needs_the_code_names_the_file(
    words: tuple[str, ...], finished: Path, mine: Path, forget: Callable[[], None], unskew: Command
) -> None:
    refused = unskew(words[0], finished, *words[1:])
    assert refused.code == 2
    assert "defined in mine.py (a copy is " in refused.err
    assert "add --import mine.py" in refused.err
    done = unskew(words[0], finished, *words[1:], "--import", mine)
    assert done.code == 0, done.err
    assert "mine.py was changed" not in done.out
    forget()


def test_an_audit_with_another_version_of_the_file_says_so(finished: Path, mine: Path, unskew: Command) -> None:
    mine.write_text(MINE + "\n# changed\n")
    done = unskew("audit", finished, "--attack", "ig", "--iterations", "2", "--import", mine)
    assert done.code == 0, done.err
    assert (
        "mine.py was changed since the run" in next((finished / "audit" / "attacks").glob("*/audit.json")).read_text()
    )


def test_the_copy_in_the_folder_is_never_executed(finished: Path, mine: Path, tmp_path: Path, unskew: Command) -> None:
    """Neither when the run is read or resumed, nor when its config.yaml is used as a recipe."""
    (copy,) = (finished / "imports").glob("mine-*.py")
    copy.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    us.load(finished)
    unskew("report", finished, "--out", tmp_path / "page.html")
    assert unskew("audit", finished).code == unskew("export", finished).code == 2
    again = unskew("run", finished / "config.yaml", "--out", tmp_path / "again")
    assert (again.code, "needs part test-shrink, model test-tiny, dataset test-ward" in again.err) == (2, True)
    config = finished / "config.yaml"
    config.write_text(config.read_text().replace("imports:", f"imports: [{copy}]\nother:"))
    assert unskew("run", config, "--out", tmp_path / "again").code == 2
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "again").exists()


def test_a_config_runs_again_with_the_file(finished: Path, mine: Path, tmp_path: Path, unskew: Command) -> None:
    again = unskew("run", finished / "config.yaml", "--import", mine, "--out", tmp_path / "again")
    assert again.code == 0, again.err
    first, second = ((folder / "model.safetensors").read_bytes() for folder in (finished, tmp_path / "again"))
    assert first == second


def test_resume_refuses_another_version_of_the_file(
    finished: Path, mine: Path, forget: Callable[[], None], unskew: Command
) -> None:
    words = ("run", "quick", *OWN, "--import", mine, "--out", finished, "--resume")
    assert unskew(*words).code == 0
    forget()
    mine.write_text(MINE + "\n# changed\n")
    refused = unskew(*words)
    assert refused.code == 2
    assert "mine.py was changed since this run was started; its old contents are in " in refused.err


def test_resume_refuses_another_version_of_a_file_that_it_imports(
    finished: Path, mine: Path, forget: Callable[[], None], unskew: Command
) -> None:
    (mine.parent / "neighbour.py").write_text("LARGEST = 2.0\n")
    refused = unskew("run", "quick", *OWN, "--import", mine, "--out", finished, "--resume")
    assert (refused.code, "neighbour.py was changed since this run was started" in refused.err) == (2, True)


@pytest.mark.parametrize("marked", [True, False])
def test_a_folder_of_runs_names_nothing_to_import(
    marked: bool, finished: Path, tmp_path: Path, unskew: Command
) -> None:
    """Neither by text in its settings, nor by a recipe that these extend, nor in a recipe below it."""
    evil = finished / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    (finished / "base.yaml").write_text("imports: [evil.py]\nextends: quick\n")
    (finished / "imports" / "deep.yaml").write_text("imports: [../evil.py]\nextends: quick\n")
    (tmp_path / "own.yaml").write_text(f"extends: {finished}/base.yaml\n")
    (finished / "config.yaml").write_text("extends: base.yaml\n")
    if not marked:
        (finished / ".unskew.json").unlink()
    for recipe in (
        finished / "base.yaml",
        finished / "imports" / "deep.yaml",
        tmp_path / "own.yaml",
        finished / "config.yaml",
    ):
        refused = unskew("run", recipe, "rounds=1", "--out", tmp_path / "again")
        assert (refused.code, "a recipe in a folder of runs may come from others" in refused.err) == (2, True)
    assert not (tmp_path / "executed").exists()


def test_imports_are_not_a_setting(unskew: Command) -> None:
    for key in ("import", "imports"):
        refused = unskew("run", "quick", f"{key}=mine.py")
        assert (refused.code, "--import FILE.py" in refused.err) == (2, True)
    with pytest.raises(us.UserError, match=r"imports"):
        us.compare("quick", overrides=["imports=[mine.py]"], methods="fedavg")
    with pytest.raises(ValueError, match="unskew fills it in"):
        us.Experiment(imports=["mine.py"])


def test_a_comparison_with_worker_processes(
    mine: Path, forget: Callable[[], None], tmp_path: Path, unskew: Command
) -> None:
    """Only the cells that use the file are run again when it changes."""
    settings = ("rounds=1", "local.epochs=1", "--methods", "fedavg,test-fedshrink", "--seeds", "0")
    words = ("compare", "quick", *settings, "--import", mine, "--out", tmp_path / "grid")
    first = unskew(*words)
    assert first.code == 0, first.err
    assert "test-fedshrink" in first.out
    forget()
    report = unskew("report", tmp_path / "grid", "--out", tmp_path / "page.html")
    assert (report.code, report.err) == (0, "")
    mine.write_text(MINE.replace("0.01", "0.02"))
    assert "2 runs, 1 already finished" in unskew(*words).err
    forget()
    mine.write_text(MINE)
    assert "2 runs, 2 already finished" in unskew(*words).err


def test_imports_of_a_recipe_are_relative_to_it(
    mine: Path, forget: Callable[[], None], tmp_path: Path, unskew: Command
) -> None:
    recipe = mine.parent / "own.yaml"
    recipe.write_text("imports: [mine.py]\nextends: quick\nmethod: test-fedshrink\nrounds: 1\n")
    (tmp_path / "child.yaml").write_text("extends: code/own.yaml\nseed: 3\n")
    done = unskew("run", tmp_path / "child.yaml", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert us.load(tmp_path / "run").config.imports[0].provides == ("part test-shrink",)


def test_a_run_that_uses_none_of_the_file_does_not_depend_on_it(
    mine: Path, forget: Callable[[], None], tmp_path: Path, unskew: Command
) -> None:
    assert unskew("run", "quick", "rounds=1", "--import", mine, "--out", tmp_path / "run").code == 0
    config = us.load(tmp_path / "run").config
    assert config.imports == ()
    assert config.identity() == us.load_recipe("quick", ["rounds=1"])[1].identity()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere", "line 1: ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1\n1 / 0", "line 2: ZeroDivisionError"),
        ("x = (", "SyntaxError"),
        ("exit(3)", "it calls exit(3)"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(text: str, message: str, mine: Path, unskew: Command) -> None:
    mine.write_text(text)
    result = unskew("run", "quick", "--import", mine)
    assert (result.code, "Traceback" in result.err) == (2, False)
    assert result.err.startswith(f"unskew: --import {mine}")
    assert message in result.err


def test_what_is_no_python_file_is_refused(tmp_path: Path, unskew: Command) -> None:
    for name in ("nowhere.py", str(tmp_path)):
        result = unskew("run", "quick", "--import", name)
        assert (result.code, f"--import {name}: expected a Python file such as mine.py" in result.err) == (2, True)


def test_a_part_must_be_a_part() -> None:
    with pytest.raises(us.UserError, match=r"part no-part: expected a subclass of us\.Part, found the class A"):

        @us.part("no-part")
        class A:
            """No part."""


def test_an_unknown_method_names_the_option(unskew: Command) -> None:
    result = unskew("run", "quick", "method=test-fedshrink")
    assert (result.code, "--import FILE.py" in result.err) == (2, True)


@pytest.mark.parametrize("words", [("methods", "test-fedshrink"), ("models", "test-tiny", "--shape", "4")])
def test_own_names_are_described(
    words: tuple[str, ...], mine: Path, forget: Callable[[], None], unskew: Command
) -> None:
    result = unskew(*words, "--import", mine)
    assert result.code == 0, result.err
    assert words[1] in result.out


@pytest.fixture
def package(mine: Path) -> dict[str, str]:
    """The environment of a process in which the file is an installed package, next to a package that is broken."""
    site = mine.parent
    for name, text in (("ours", "unskew.methods"), ("broken", "unskew.models")):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{text}]\nx = {'mine' if name == 'ours' else 'nowhere'}\n")
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def test_installed_packages_register_by_entry_points(package: dict[str, str], tmp_path: Path) -> None:
    words = ["compare", "quick", *SETTINGS, "--methods", "fedavg,test-fedshrink", "--seeds", "0", "--json"]
    command = [sys.executable, "-m", "unskew.cli", *words, "--out", str(tmp_path / "grid")]
    done = subprocess.run(command, env=package, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert [row["method"] for row in rows] == ["fedavg", "test-fedshrink"]
    assert "package broken: its entry point x in unskew.models failed with ModuleNotFoundError" in done.stderr


def test_a_missing_file_of_a_recipe_is_named_with_the_recipe(tmp_path: Path, unskew: Command) -> None:
    (tmp_path / "own.yaml").write_text("imports: [gone.py]\nextends: quick\n")
    refused = unskew("run", tmp_path / "own.yaml")
    assert (refused.code, "own.yaml: imports:" in refused.err, "gone.py: expected a Python file" in refused.err) == (
        2,
        True,
        True,
    )
