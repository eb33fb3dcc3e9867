"""Fixtures: the command line in this process, as in the tests of the runner, and a single thread, as in an audit."""

from collections.abc import Iterator

import pytest

from runner.conftest import unskew
from unskew.engines.engine import one_thread

__all__ = ["unskew"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Steps are so small that on a busy machine several threads would mostly wait for each other."""
    with one_thread():
        yield
