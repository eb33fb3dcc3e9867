"""The help: commands in order, full sentences, nothing cut off, at most 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from typer.main import get_command
from typer.models import OptionInfo

from runner.conftest import Command
from unskew.cli import ORDER, app
from unskew.commands import data_command


def commands(text: str) -> dict[str, str]:
    """Name and summary of every command in a help text."""
    return dict(re.findall(r"^  (\w+) {2,}(\S.*)$", text.partition("Commands:")[2], re.MULTILINE))


def test_commands_are_listed_in_the_given_order(unskew: Command) -> None:
    names = list(commands(unskew("--help").out))
    assert names == sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    assert {"run", "partition", "methods", "models", "data"} <= set(names)
    assert len(names) == len(app.registered_commands) + len(app.registered_groups)


@pytest.mark.parametrize("words", [[], ["data"]])
def test_summaries_of_commands_are_not_cut_off(words: list[str], unskew: Command) -> None:
    for name, summary in commands(unskew(*words, "--help").out).items():
        assert summary.endswith("."), f"{name}: {summary}"
        assert not summary.endswith("..."), f"{name} is cut off: {summary}"


def command_paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of a command and of every command below it."""
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from command_paths(child, (*path, name))


@pytest.mark.parametrize("words", list(command_paths(get_command(app))), ids=" ".join)
def test_help_fits_80_columns(words: tuple[str, ...], unskew: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = unskew(*words, "--help").out.splitlines()
    assert lines[0].startswith(" ".join(("Usage: unskew", *words)))
    assert not [line for line in lines if len(line) > 80]
    assert not [line for line in lines[1:] if "…" in line or "..." in line], "a text is cut off"
    assert not [line for line in lines if line.rstrip().endswith("[default:")], "a default is torn from its option"


def test_options_named_like_their_placeholder_declare_their_name() -> None:
    """typer 0.27 makes `--SEEDS` of an option `seeds` whose placeholder is SEEDS."""
    checked = 0
    for command in (*app.registered_commands, *data_command.app.registered_commands):
        assert command.callback is not None
        for name, hint in get_type_hints(command.callback, include_extras=True).items():
            for info in (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, OptionInfo)):
                if (info.metavar or "").lower() == name:
                    # In Annotated, the first argument of Option is a name, which typer keeps as the default.
                    assert info.default == f"--{name}", f"{command.callback.__name__}: {name}"
                    checked += 1
    assert checked >= 5
