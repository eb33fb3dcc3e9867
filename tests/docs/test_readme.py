"""The README's first example runs as written, and its links point to existing files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_first_example_runs_and_ends_with_two_accuracies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 10
    exec(compile(BLOCKS[0], "README.md", "exec"), {"__name__": "readme"})
    found = dict(re.findall(r"'(\w+)': ([\d.]+)", capsys.readouterr().out))
    assert set(found) == {"fedavg", "scaffold"}
    assert all(50 < float(accuracy) <= 100 for accuracy in found.values())
    assert {path.parent.name for path in tmp_path.glob("runs/*/model.safetensors")} == set(found)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (Path(__file__).parents[2] / link).exists()
