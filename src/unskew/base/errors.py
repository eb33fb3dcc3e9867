"""Exceptions shown to the user without a traceback, and helpers for their messages.

A message states what was expected, what was found, and what to type instead.
"""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """An error whose message is enough for the user: wrong input, a full disk, a loss that is not finite.

    The command line prints it without a traceback.
    """


class StoppedByUser(Exception):  # noqa: N818
    """The user stopped a run; the message says how to continue it."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The hint "; did you mean ...?" with the closest known word, or an empty string.

    >>> did_you_mean("fedavgg", ["fedavg", "moon"])
    '; did you mean fedavg?'
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def expected_one_of(known: Iterable[str], value: object, choice: str = "one of") -> str:
    """The message for a value that is not among the allowed words, of which there may be many: so they come last.

    choice: such as "some of" or "one of the columns".

    >>> expected_one_of(["naive", "taylor"], "naiv")
    "found 'naiv'; did you mean naive? Expected one of naive, taylor"
    >>> expected_one_of(["naive", "taylor"], 3)
    'found 3; expected one of naive, taylor'
    """
    words = list(known)
    if len(words) == 1:
        return f"found {value!r}; expected {words[0]}"
    hint = did_you_mean(str(value), words)
    return f"found {value!r}{f'{hint} E' if hint else '; e'}xpected {choice} {', '.join(words)}"
