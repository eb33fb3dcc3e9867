"""The docstring of every method file has the paper, numbered equations, departures and sources of its numbers."""

from __future__ import annotations

import re

import pytest

from unskew.describe import describe_method, method_docstring
from unskew.protocol import method_registry

NAMES = describe_method.shipped()
PARTS = sorted({part for name in NAMES for part in method_registry.resolve(name)})
# The name of a paper or of its code, or a word for one.
SOURCE = re.compile(r"Fed[A-Z]\w+|FLea|HFMDS|MOON|SCAFFOLD|paper|code|original|authors|own choice")


def file_of(part: str) -> method_docstring.MethodDocstring:
    return method_docstring.read(method_registry.PARTS[part])


def test_the_first_seven_methods_are_registered() -> None:
    assert set(NAMES) >= {"fedavg", "fedavgm", "fedcurv", "fednova", "fedprox", "moon", "scaffold"}
    assert NAMES[0] == "fedavg"


@pytest.mark.parametrize("part", PARTS)
def test_first_line_names_authors_and_year(part: str) -> None:
    docstring = file_of(part)
    assert docstring.title
    assert docstring.authors
    assert re.fullmatch(r"\d{4}", docstring.year)
    assert docstring.line


@pytest.mark.parametrize("part", PARTS)
def test_paper_has_a_title_and_a_year(part: str) -> None:
    paper = file_of(part).paper
    assert re.search(r'".+"', paper), 'expected: Paper: authors, "title", venue year.'
    assert re.search(r"\b(19|20)\d\d\b", paper)


@pytest.mark.parametrize("part", PARTS)
def test_equations_are_numbered_from_one_and_marked_in_the_code(part: str) -> None:
    numbers = [method_docstring.equation_number(equation) for equation in file_of(part).equations]
    assert numbers == [str(i + 1) for i in range(len(numbers))]
    assert numbers
    assert set(numbers) <= method_docstring.equation_numbers_in_code(method_registry.PARTS[part].__module__)


@pytest.mark.parametrize("part", PARTS)
def test_file_lists_departures(part: str) -> None:
    import inspect
    import sys

    assert "\nDiffers: " in (inspect.getdoc(sys.modules[method_registry.PARTS[part].__module__]) or "")


@pytest.mark.parametrize("part", PARTS)
def test_every_field_is_described_with_a_source(part: str) -> None:
    name = next(name for name in NAMES if part in method_registry.resolve(name))
    for setting in describe_method.describe(name).settings:
        assert SOURCE.search(setting.meaning), f"{setting.part}.{setting.name}: {setting.meaning!r} names no source"


def test_equations_of_a_replaced_part_are_left_out() -> None:
    """Server momentum replaces FedAvg's mean, which is its equation (2)."""
    files = {file.module: file for file in describe_method.describe("fedprox+avgm").files}
    assert [method_docstring.equation_number(line) for line in files["fedavg"].equations] == ["1"]
    assert [method_docstring.equation_number(line) for line in files["fedprox"].equations] == ["1"]
    assert len(files["fedavgm"].equations) == 3


def test_continuation_lines_belong_to_their_equation() -> None:
    first = file_of("nova").equations[0]
    assert first.count("\n") == 1
    assert "momentum rho" in first


def test_departures_are_empty_if_nothing_differs() -> None:
    assert file_of("ce").differs == ""
    assert "stragglers" in file_of("prox").differs
