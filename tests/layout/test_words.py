"""Every file stem and class name has one owner, and no name contains a word that docs/glossary.md rules out."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import unskew

ROOT = Path(unskew.__file__).parent
GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
PUBLIC_KEYS = {"who"}  # `us.Exchange(who=...)` and a column of results/audit/leak.csv
OLD_NAMES = {"mine"}  # hidden aliases of the version before


def banned_words(page: str) -> set[str]:
    table = page.partition("## Words that names do not use")[2]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)} - {"seen"}


BANNED = banned_words(GLOSSARY.read_text())


def names(tree: ast.AST) -> Iterator[str]:
    """All names that a file defines: classes, functions, parameters, fields, variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def words(name: str) -> set[str]:
    """`_allRowsAt_once` -> all, rows, at, once."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def unclear(root: Path) -> list[str]:
    bad = []
    for file in sorted(root.rglob("*.py")):
        for name in sorted({file.stem, *names(ast.parse(file.read_text()))} - PUBLIC_KEYS - OLD_NAMES):
            bad += [f"{file.relative_to(root)}: {name} ({word})" for word in sorted(words(name) & BANNED)]
    return bad


def several_owners(root: Path) -> dict[str, list[str]]:
    owners = defaultdict(list)
    for file in sorted(root.rglob("*.py")):
        if file.stem != "__init__":
            owners[f"{file.stem}.py"].append(str(file.relative_to(root)))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                owners[f"class {node.name}"].append(str(file.relative_to(root)))
    return {name: files for name, files in owners.items() if len(files) > 1}


def test_no_name_holds_a_word_that_explains_nothing() -> None:
    assert unclear(ROOT) == []


def test_a_file_stem_and_a_class_have_one_owner() -> None:
    assert several_owners(ROOT) == {}


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("def f(rows):\n    found = rows", ["x.py: found (found)"]),
        ("class Player:\n    pass", ["x.py: Player (player)"]),
        ("def told_when_full(): ...", ["x.py: told_when_full (told)"]),
        ("class A:\n    who_asks: int = 0", ["x.py: who_asks (who)"]),
        ("def f(self):\n    self._ahead = 1", ["x.py: _ahead (ahead)"]),
        ("def f(*, mine=1):\n    profound = mine", []),
    ],
)
def test_an_unclear_name_is_reported(source: str, bad: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(source)
    assert unclear(tmp_path) == bad


def test_two_owners_are_reported(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "table.py").write_text("class Table:\n    pass")
    assert several_owners(tmp_path) == {
        "table.py": ["a/table.py", "b/table.py"],
        "class Table": ["a/table.py", "b/table.py"],
    }


def test_the_glossary_is_read() -> None:
    assert {"found", "told", "there", "whoever", "letter", "mine"} <= BANNED
    assert not BANNED & {"client", "server", "round", "run", "rows"}
