"""Every test of the suite that asks for `method` or `engine` runs with each of them."""

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
def spy() -> Iterator[Any]:
    """Registers parts for one test."""
    method_registry.known()  # loads the package's own, which must survive
    before = dict(method_registry.PARTS)

    def make(cls: type[us.Part], name: str = "spy") -> str:
        us.part(name)(cls)
        return f"fedavg+{name}"

    yield make
    method_registry.PARTS.clear()
    method_registry.PARTS.update(before)
