"""The one error a person is meant to read: what was expected, what was found, what to type instead."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in what was asked for; the command line prints it without a traceback."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint "; did you mean ...?" naming the closest known word, or nothing.

    >>> nearest("fedavgg", ["fedavg", "moon"])
    '; did you mean fedavg?'
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
