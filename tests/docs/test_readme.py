"""The README is walked from top to bottom in an empty folder with the wheel installed, and its links lead somewhere.

A block below `<!-- needs: ... -->` is left out: it needs the checkout, data, a GPU or an extra. A Python block whose
first line is `# NAME.py` is saved under that name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
NEEDS = {"the checkout", "data", "a GPU", "an extra"}


class Block(NamedTuple):
    """A block of code, and what it needs that a new installation does not have."""

    language: str
    text: str
    needs: frozenset[str]


def blocks() -> list[Block]:
    pattern = r"(?:<!-- needs: ([^>]*) -->\n)?```(\w*)\n(.*?)```"
    return [
        Block(language, text, frozenset(needs.split(", ")) if needs else frozenset())
        for needs, language, text in re.findall(pattern, README, re.DOTALL)
    ]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A shell that finds the wheel before anything else, and no data."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "results", folder / "results")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    path = f"{folder / 'site' / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": str(folder / "site"), "PATH": path, "UNSKEW_DATA": str(folder / "data")}


def run(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_block_runs_as_written(environment: dict[str, str], tmp_path: Path) -> None:
    place = run([sys.executable, "-c", "import unskew; print(unskew.__file__)"], tmp_path, environment)
    assert place.startswith(environment["PYTHONPATH"])
    printed = ""
    for block in blocks():
        if block.needs:
            continue
        if named := re.match(r"# (\w+\.py)\n", block.text):
            (tmp_path / named[1]).write_text(block.text)
        elif block.language == "python":
            printed += run([sys.executable, "-c", block.text], tmp_path, environment)
        else:
            printed += run(["bash", "-euo", "pipefail", "-c", block.text], tmp_path, environment)
    best = dict(re.findall(r"'(fedavg|scaffold)': ([\d.]+)", printed))
    assert set(best) == {"fedavg", "scaffold"}
    assert all(50 < float(accuracy) <= 100 for accuracy in best.values())


def test_blocks_that_are_left_out_say_why() -> None:
    assert [block.needs - NEEDS for block in blocks() if block.needs - NEEDS] == []
    walked = [block for block in blocks() if not block.needs]
    assert len(walked) >= 10
    assert README.count("```") == 2 * len(blocks())


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
