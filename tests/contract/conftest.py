"""Fixtures: a test with a parameter `method` or `engine` runs with every method or engine."""

from collections.abc import Iterator
from typing import Any

import pytest
from small import ENGINES, METHODS, VARIANTS

import unskew as us
from unskew.protocol import method_registry


@pytest.fixture(params=[*METHODS, *VARIANTS])
def method(request: pytest.FixtureRequest) -> str:
    """Every registered method, the test-only ones that use the remaining hooks, and variants."""
    return str(request.param)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fedavg_with() -> Iterator[Any]:
    """Registers a part for one test; the result is FedAvg with this part."""
    method_registry.method_names()  # registers the package's own parts, which must stay registered
    before = dict(method_registry.PARTS)

    def register(cls: type[us.Part], name: str = "spy") -> str:
        us.part(name)(cls)
        return f"fedavg+{name}"

    yield register
    method_registry.PARTS.clear()
    method_registry.PARTS.update(before)
