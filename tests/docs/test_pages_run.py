"""Every Python block of the tutorials, extending.md and debugging.md runs as written, in an empty folder."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import unskew as us
from unskew import data, models
from unskew.audits import attacks
from unskew.engines import engine_registry
from unskew.protocol import method_registry

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [*sorted((DOCS / "tutorials").glob("*.md")), DOCS / "extending.md", DOCS / "debugging.md"]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.fixture
def registries() -> Iterator[None]:
    """Remove everything that a page has registered."""
    method_registry.method_names()  # registers the package's own parts, which must stay registered
    tables: list[dict] = [
        method_registry.PARTS,
        method_registry.METHODS,
        models.ZOO,
        data._LOADERS,
        attacks.ATTACKS,
        engine_registry.ENGINES,
    ]
    before = [dict(table) for table in tables]
    yield
    for table, old in zip(tables, before):
        table.clear()
        table.update(old)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
@pytest.mark.usefixtures("registries")
def test_runs_as_written(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), namespace)
    assert list(tmp_path.rglob("model.safetensors"))


def test_a_new_method_takes_fewer_than_15_lines() -> None:
    first = blocks(DOCS / "tutorials" / "new-method.md")[0]
    assert len([line for line in first.splitlines() if line.strip()]) < 15


def test_no_tutorial_is_missing() -> None:
    assert {page.stem for page in PAGES} >= {"comparing", "new-method", "own-data"}


def listed(name: str) -> set[str]:
    """Attributes in the table of docs/extending.md that is headed by this class."""
    page = (DOCS / "extending.md").read_text()
    table = page.partition(f"<!-- attributes: {name} -->")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`(\w+)", cell)}


@pytest.mark.parametrize("cls", [us.View, us.End, us.Client, us.Server, us.Messages], ids=lambda cls: cls.__name__)
def test_every_attribute_is_listed(cls: type) -> None:
    old_names = {"mine", "known", "of"}  # hidden aliases of the version before
    own = {name for name, _ in inspect.getmembers(cls)} | set(getattr(cls, "__annotations__", {}))
    own |= {field.name for field in fields(cls)} if is_dataclass(cls) else set()
    assert listed(cls.__name__) == {name for name in own if not name.startswith("_")} - old_names


def test_every_hook_is_listed() -> None:
    page = (DOCS / "extending.md").read_text()
    table = page.partition("### When the hooks run")[2].partition("\n\nHooks")[0]
    hooks = {name for name, value in vars(us.Part).items() if inspect.isfunction(value) and not name.startswith("_")}
    hooks -= {"known", "now"}  # hidden aliases of the version before
    assert set(re.findall(r"`(\w+)\(", table.replace("server.replace(", ""))) == hooks
