"""The examples in docstrings give the results that they show."""

import doctest
import importlib
import importlib.util
import pkgutil

import pytest

import unskew

ALL = [module.name for module in pkgutil.walk_packages(unskew.__path__, "unskew.") if module.name != "unskew.cli"]
# Kernels need Triton, which comes with PyTorch's GPU builds only.
KERNELS, THERE = "unskew.engines.stacked.kernels.", importlib.util.find_spec("triton") is not None
MODULES = [name for name in ALL if THERE or not name.startswith(KERNELS) or name == f"{KERNELS}reference"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert (
        doctest.testmod(importlib.import_module(name), extraglobs={"torch": importlib.import_module("torch")}).failed
        == 0
    )


def test_there_are_examples() -> None:
    modules = (importlib.import_module(name) for name in MODULES)
    assert any(test.examples for module in modules for test in doctest.DocTestFinder().find(module))
