"""Every method's file says what a reader needs: paper, numbered equations, departures, sources of its numbers."""

from __future__ import annotations

import re

import pytest

from unskew.describe import describe_method, method_docstring
from unskew.protocol import method_registry

NAMES = describe_method.shipped()
PARTS = sorted({part for name in NAMES for part in method_registry.resolve(name)})
# A paper or code by name, or one of the words that stand for it.
SOURCE = re.compile(r"Fed[A-Z]\w+|FLea|HFMDS|MOON|SCAFFOLD|paper|code|original|authors|own choice")


def file_of(part: str) -> method_docstring.MethodDocstring:
    return method_docstring.read(method_registry.PARTS[part])


def test_the_seven_first_methods_are_found() -> None:
    assert set(NAMES) >= {"fedavg", "fedavgm", "fedcurv", "fednova", "fedprox", "moon", "scaffold"}
    assert NAMES[0] == "fedavg"


@pytest.mark.parametrize("part", PARTS)
def test_first_line_names_authors_and_year(part: str) -> None:
    found = file_of(part)
    assert found.title
    assert found.authors
    assert re.fullmatch(r"\d{4}", found.year)
    assert found.line


@pytest.mark.parametrize("part", PARTS)
def test_paper_has_a_title_and_a_year(part: str) -> None:
    paper = file_of(part).paper
    assert re.search(r'".+"', paper), 'expected: Paper: authors, "title", venue year.'
    assert re.search(r"\b(19|20)\d\d\b", paper)


@pytest.mark.parametrize("part", PARTS)
def test_equations_are_numbered_from_one_and_marked_in_the_code(part: str) -> None:
    numbers = [method_docstring.number(equation) for equation in file_of(part).equations]
    assert numbers == [str(i + 1) for i in range(len(numbers))]
    assert numbers
    assert set(numbers) <= method_docstring.numbers_on_code(method_registry.PARTS[part].__module__)


@pytest.mark.parametrize("part", PARTS)
def test_file_says_what_differs(part: str) -> None:
    import inspect
    import sys

    assert "\nDiffers: " in (inspect.getdoc(sys.modules[method_registry.PARTS[part].__module__]) or "")


@pytest.mark.parametrize("part", PARTS)
def test_every_field_is_described_with_a_source(part: str) -> None:
    name = next(name for name in NAMES if part in method_registry.resolve(name))
    for setting in describe_method.describe(name).settings:
        assert SOURCE.search(setting.told), f"{setting.part}.{setting.name}: {setting.told!r} names no source"


def test_equations_of_a_replaced_part_are_left_out() -> None:
    """Server momentum replaces FedAvg's mean, which is its equation (2)."""
    files = {file.module: file for file in describe_method.describe("fedprox+avgm").files}
    assert [method_docstring.number(line) for line in files["fedavg"].equations] == ["1"]
    assert [method_docstring.number(line) for line in files["fedprox"].equations] == ["1"]
    assert len(files["fedavgm"].equations) == 3


def test_continuation_lines_belong_to_their_equation() -> None:
    first = file_of("nova").equations[0]
    assert first.count("\n") == 1
    assert "momentum rho" in first


def test_nothing_differs_is_empty_and_anything_else_is_told() -> None:
    assert file_of("ce").differs == ""
    assert "stragglers" in file_of("prox").differs
