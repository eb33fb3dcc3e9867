"""The package is built in layers: a folder imports only from folders below it, and tests/ mirrors the folders."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import unskew

ROOT, TESTS = Path(unskew.__file__).parent, Path(__file__).parents[1]
# From bottom to top; folders on one line do not import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("models", "data"),
    ("protocol",),
    ("methods",),
    ("wire",),
    ("client",),
    ("engines",),
    ("server",),
    ("config",),
    ("results",),
    ("runner",),
    ("reports", "describe"),
    ("comparisons",),
    ("audits",),
    ("reproductions",),
    ("commands",),
    ("cli",),
    ("__main__",),
    ("__init__",),
)
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
DOORS = {("protocol/method_registry.py", "methods")}  # the registry imports every method's file by its name
TABLES = {"papers", "recipes"}  # package data without code


def imports(file: Path) -> Iterator[str]:
    """Top folders of unskew that a file imports from, including imports for type checking."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "unskew":
            names = [f"unskew.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            yield "relative"  # refused, because only an absolute import shows the layer
        for name in names:
            if name.startswith("unskew.") and name != "unskew.__version__":
                top = name.split(".")[1]
                yield top if top in LEVEL else "__init__"


def folder_of(file: Path) -> str:
    inside = file.relative_to(ROOT)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def wrong_doors(files: Iterator[Path]) -> list[str]:
    found = []
    for file in files:
        here, name = folder_of(file), str(file.relative_to(ROOT))
        for there in sorted(set(imports(file)) - {here}):
            if LEVEL.get(there, len(LAYERS)) >= LEVEL[here] and (name, there) not in DOORS:
                found.append(f"{name} imports {there}/, which is not below {here}/")
    return found


def test_imports_go_down() -> None:
    assert wrong_doors(ROOT.rglob("*.py")) == []


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        (
            "client/x.py",
            "from unskew.server.sums import Sum",
            "client/x.py imports server/, which is not below client/",
        ),
        ("models/x.py", "import unskew.data.cifar", "models/x.py imports data/, which is not below models/"),
        ("wire/x.py", "from ..server import sums", "wire/x.py imports relative/, which is not below wire/"),
        ("wire/x.py", "from unskew import run", "wire/x.py imports __init__/, which is not below wire/"),
        ("wire/x.py", "from unskew import client", "wire/x.py imports client/, which is not below wire/"),
    ],
)
def test_a_door_in_the_wrong_wall_is_named(
    file: str, line: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(f"from __future__ import annotations\n\nif True:\n    {line}\n")
    assert wrong_doors(tmp_path.rglob("*.py")) == [expected]


def test_every_folder_has_its_layer() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    modules = {path.stem for path in ROOT.glob("*.py")}
    assert (folders | modules) - TABLES == LEVEL.keys()


def test_tests_mirror_the_tree() -> None:
    """Only tests of several layers have extra folders: the contract, the papers' numbers, the docs, the layout."""
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - LEVEL.keys() == {"contract", "oracle", "docs", "layout"}
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]


@pytest.mark.parametrize("folder", sorted(LEVEL.keys() - {"cli", "__main__", "__init__"}))
def test_every_folder_says_what_lives_in_it(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    assert 5 <= len(text.splitlines()) <= 40
    named = set(re.findall(r"`([a-z_/]+\.py)`", text))
    known = {path.name for tree in (ROOT, TESTS, TESTS.parent / "benchmarks") for path in tree.rglob("*.py")}
    assert {name.rpartition("/")[2] for name in named} <= known, "files that do not exist"
    files = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}
    many = folder == "methods"  # `unskew methods` lists them
    assert many or {stem for stem in files if not re.search(rf"\b{stem}\b", text)} == set(), "files that are not listed"
