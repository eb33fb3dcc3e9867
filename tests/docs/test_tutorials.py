"""The tutorials run as written, block after block, in an empty folder."""

import re
from pathlib import Path

import pytest

from unskew.protocol import method_registry

PAGES = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_runs_as_written(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    method_registry.known()  # loads the package's own, which must survive
    before = dict(method_registry.PARTS)
    names: dict[str, object] = {"__name__": page.stem}
    try:
        for block in blocks(page):
            exec(compile(block, page.name, "exec"), names)
    finally:
        method_registry.PARTS.clear()
        method_registry.PARTS.update(before)
    assert list(tmp_path.rglob("model.safetensors"))


def test_a_new_method_takes_fewer_than_15_lines() -> None:
    first = blocks(next(page for page in PAGES if page.stem == "new-method"))[0]
    assert len([line for line in first.splitlines() if line.strip()]) < 15


def test_all_pages_are_there() -> None:
    assert {page.stem for page in PAGES} >= {"comparing", "new-method", "own-data"}
