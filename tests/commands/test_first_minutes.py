"""What a newcomer types first: --version, python -m, completion, and keys by the names of other frameworks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import unskew as us
from runner.conftest import Command

VERSION = f"unskew {us.__version__}, Python {sys.version.split()[0]}, torch {torch.__version__}"


def test_version(unskew: Command) -> None:
    result = unskew("--version")
    assert (result.code, result.out.strip()) == (0, VERSION)


def test_python_m_unskew_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "unskew", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == VERSION
    done = subprocess.run([sys.executable, "-m", "unskew", "report", "nowhere"], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_python_m_unskew_version_does_not_import_torch() -> None:
    code = "import sys, runpy; sys.argv = ['unskew', '--version']\ntry: runpy.run_module('unskew')\n"
    code += "except SystemExit: pass\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("unskew re", ["reproduce", "report"]),
        ("unskew run qu", ["quick"]),
        ("unskew compare dem", ["demo", "demo-audit"]),
    ],
)
def test_completion_of_bash(typed: str, completed: list[str]) -> None:
    shell = {"_UNSKEW_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    command = [sys.executable, "-c", "import sys; sys.argv = ['unskew']; from unskew.cli import main; main()"]
    done = subprocess.run(command, env=os.environ | shell, capture_output=True, text=True)
    assert done.stdout.split() == completed, done.stderr


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("lr=0.1", "unknown key lr; did you mean local.lr?"),
        ("mu=0.1", "unknown key mu; did you mean method.moon.mu or method.prox.mu?"),
        ("clients=10", "unknown key clients; did you mean partition.clients?"),
        ("optimizer=adam", "unknown key optimizer; did you mean local.optimiser?"),
        ("alpha=1", "unknown key alpha; did you mean partition.alpha or method."),
        ("num-rounds=3", "unknown key num-rounds; did you mean rounds?"),
        ("local.learning_rate=1", "unknown key local.learning_rate; did you mean local.lr?"),
        ("lokal.lr=1", "unknown key lokal; did you mean local?"),
        ("partition.alpha=1", "this key belongs to partition.name=dirichlet, found partition.name=shards"),
        ("patiens=1", "unknown key patiens; did you mean stop.patience?"),
        (
            "method.mu=1",
            "no part of fedavg (ce, average) has this setting; there is method.moon.mu and method.prox.mu",
        ),
        ("zzz=1", "unknown key zzz; allowed: method, rounds"),
    ],
)
def test_keys_by_other_names(typed: str, hint: str, unskew: Command) -> None:
    result = unskew("run", "quick", typed)
    assert (result.code, hint in result.err) == (2, True), result.err


def test_a_setting_without_its_part(unskew: Command) -> None:
    """The hint names the part that the method has."""
    result = unskew("run", "quick", "method=fedprox", "method.mu=1")
    assert "did you mean method.prox.mu?" in result.err
    result = unskew("run", "quick", "method.prox.mu=1")
    assert "found 'prox'; expected method.PART.FIELD with one of the parts ce, average" in result.err
    assert "to add the part type method=fedavg+prox" in result.err


def test_the_mistake_comes_before_the_choices(unskew: Command) -> None:
    err = unskew("run", "quick", "method=fedporx").err
    assert err.startswith("unskew: method: found 'fedporx'; did you mean fedprox? Expected one of ")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("cifar10", "to download it, type unskew data download cifar10 --data-dir"),
        ("emnist-letters", "to download it, type unskew data download emnist-letters --data-dir"),
        ("hapt", "unskew cannot download it; unskew data says how to get it"),
    ],
)
def test_a_missing_dataset_says_what_to_type(name: str, advice: str, unskew: Command) -> None:
    result = unskew("run", "quick", f"data={name}")
    assert (result.code, advice in result.err) == (2, True), result.err
