"""The command line in this process, as the tests of runs have it, and one thread, as attacks have it."""

from collections.abc import Iterator

import pytest

from runner.conftest import unskew
from unskew.engines.engine import one_thread

__all__ = ["unskew"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Steps are small: on a busy machine threads would wait for each other longer than they compute."""
    with one_thread():
        yield
