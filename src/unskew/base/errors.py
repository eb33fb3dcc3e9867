"""What a person is meant to read: a mistake with what was expected, found and to be typed instead; or a stop."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in what was asked for; the command line prints it without a traceback."""


class StoppedByUser(Exception):  # noqa: N818
    """A person stopped what was going on; the message says how to go on."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint "; did you mean ...?" naming the closest known word, or nothing.

    >>> nearest("fedavgg", ["fedavg", "moon"])
    '; did you mean fedavg?'
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def one_of(known: Iterable[str], found: object) -> str:
    """What was expected and found where only some words are allowed.

    >>> one_of(["naive", "taylor"], "naiv")
    "expected one of naive, taylor, found 'naiv'; did you mean naive?"
    """
    words = list(known)
    choice = f"{'one of ' if len(words) > 1 else ''}{', '.join(words)}"
    return f"expected {choice}, found {found!r}{nearest(str(found), words)}"
