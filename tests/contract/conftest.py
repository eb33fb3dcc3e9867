"""Every test of the suite that asks for `method` or `engine` runs with each of them."""

import pytest
from small import ENGINES, METHODS


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    """Every registered method, and the test-only ones that use the remaining hooks."""
    return str(request.param)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)
