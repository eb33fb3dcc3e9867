"""The command line in this process, from the tests of runs."""

from runner.conftest import unskew

__all__ = ["unskew"]
