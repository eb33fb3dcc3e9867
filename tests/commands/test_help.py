"""The help as a newcomer reads it: in order, whole sentences, nothing cut off."""

from __future__ import annotations

import re

import pytest

from runner.conftest import Command
from unskew.cli import ORDER, app


def commands(text: str) -> dict[str, str]:
    """Name and short help of every command listed."""
    return dict(re.findall(r"^  (\w+) {2,}(\S.*)$", text.partition("Commands:")[2], re.MULTILINE))


def test_commands_come_in_the_order_of_a_persons_questions(unskew: Command) -> None:
    names = list(commands(unskew("--help").out))
    assert names == sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    assert {"run", "partition", "methods", "models", "data"} <= set(names)
    assert len(names) == len(app.registered_commands) + len(app.registered_groups)


@pytest.mark.parametrize("words", [[], ["data"]])
def test_short_help_fits_a_line_of_80(words: list[str], unskew: Command) -> None:
    for name, told in commands(unskew(*words, "--help").out).items():
        assert told.endswith("."), f"{name}: {told}"
        assert not told.endswith("..."), f"{name} is cut off: {told}"
