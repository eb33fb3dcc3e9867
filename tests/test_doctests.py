"""The examples in the docstrings do what they say."""

import doctest
import importlib
import pkgutil

import pytest

import unskew

MODULES = [module.name for module in pkgutil.walk_packages(unskew.__path__, "unskew.") if module.name != "unskew.cli"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert (
        doctest.testmod(importlib.import_module(name), extraglobs={"torch": importlib.import_module("torch")}).failed
        == 0
    )


def test_there_are_examples() -> None:
    modules = (importlib.import_module(name) for name in MODULES)
    assert any(test.examples for module in modules for test in doctest.DocTestFinder().find(module))
