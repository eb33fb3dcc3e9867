"""Every test of the suite that asks for `method` or `engine` runs with each of them."""

import pytest
from small import ENGINES, METHODS, VARIANTS


@pytest.fixture(params=[*METHODS, *VARIANTS])
def method(request: pytest.FixtureRequest) -> str:
    """Every registered method, the test-only ones that use the remaining hooks, and variants."""
    return str(request.param)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)
