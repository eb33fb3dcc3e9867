"""The command line in this process, as the tests of runs have it."""

from runs.conftest import unskew

__all__ = ["unskew"]
