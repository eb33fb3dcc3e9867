"""The section `absence`: who is away and when, by name, by intervals, drawn, by class, or from a trace."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from unskew.base.config_base import ConfigSection
from unskew.base.errors import expected_one_of

Scenario = Literal["temporary", "permanent", "sequential", "two-groups", "pilot"]
RANK = re.compile(r"largest(?: ([1-9]\d*))?")
COLUMNS = ("client", "from", "until")
KINDS = {
    "scenario": "a named scenario", "clients": "clients and rounds", "classes": "classes and rounds",
    "dropout": "a share per round", "sessions": "mean lengths on and off", "trace": "a CSV file",
}  # fmt: skip


class SessionsConfig(ConfigSection):
    on: float = Field(ge=1, description="mean number of rounds that a client stays")
    off: float = Field(ge=1, description="mean number of rounds until it comes back")


class AbsenceConfig(ConfigSection):
    """One kind of absence; several may be listed."""

    scenario: Scenario | None = Field(
        None, description="temporary, permanent, sequential, two-groups or pilot, as in the FedDig paper"
    )
    clients: tuple[int, ...] | str | None = Field(
        None, description="clients that cannot be reached; `largest` and `largest 2` are found after the split"
    )
    classes: tuple[int, ...] | None = Field(None, description="clients leave that hold much of one of these classes")
    share: float = Field(0.1, ge=0, lt=1, description="for classes: leave with more than this share of a class's rows")
    rounds: tuple[int, int] | None = Field(
        None, description="[first, end]: absent from round first up to, not including, round end"
    )
    dropout: float | None = Field(None, ge=0, lt=1, description="probability of being absent in a round")
    sessions: SessionsConfig | None = Field(None, description="clients come and go in sessions of random length")
    trace: str | None = Field(
        None, description="CSV file with the columns client, from and until; until is the round of return, or empty"
    )
    intervals: tuple[tuple[int, int, int], ...] = Field(
        (), description="client, first round and end of each interval; filled in by unskew"
    )

    @model_validator(mode="before")
    @classmethod
    def _scenario_by_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in get_args(Scenario):
                raise ValueError(expected_one_of(get_args(Scenario), value))
            return {"scenario": value}
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "none"
            raise ValueError(f"expected one of {', '.join(KINDS)}, found {names}; list several as [{{...}}, {{...}}]")
        needs_rounds = given[0] in ("clients", "classes")
        if needs_rounds and self.rounds is None:
            raise ValueError(f"{given[0]}: expected rounds: [first, end] beside it, found none")
        if not needs_rounds and self.rounds is not None:
            raise ValueError(f"rounds: expected with clients or classes only, found with {given[0]}")
        if self.rounds is not None and not 1 <= self.rounds[0] < self.rounds[1]:
            raise ValueError("rounds: expected [first, end] with 1 <= first < end")
        return self

    @field_validator("clients", mode="before")
    @classmethod
    def _rank_or_numbers(cls, value: Any) -> Any:
        if isinstance(value, str) and not RANK.fullmatch(value):
            raise ValueError(f"expected numbers such as [0, 3], largest, or a rank such as largest 2, found {value!r}")
        return value

    @model_validator(mode="after")
    def _read_trace(self, info: ValidationInfo) -> Self:
        """The trace is read now, so that its contents and not its path belong to the run."""
        recorded = (info.context or {}).get("recorded", False)
        if self.trace is not None and not recorded:
            object.__setattr__(self, "intervals", read_trace(Path(self.trace)))
        return self

    @model_serializer(mode="wrap")
    def _only_given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only the keys of this kind of absence, so that config.yaml is easy to read."""
        plain: dict[str, Any] = {key: value for key, value in dump(self).items() if value is not None}
        if self.classes is None:
            plain.pop("share", None)
        return plain if self.intervals else {key: value for key, value in plain.items() if key != "intervals"}

    @property
    def rank(self) -> int | None:
        """1 for the largest client; None if clients are not given by rank."""
        match = RANK.fullmatch(self.clients) if isinstance(self.clients, str) else None
        return int(match[1] or 1) if match else None

    def identity_settings(self, rounds: int) -> dict[str, Any]:
        """What may change a result; empty if nobody is absent in any of the rounds."""
        plain = self.model_dump(mode="json", exclude={"intervals", "trace"})
        if self.trace is not None:
            plain["intervals"] = [list(interval) for interval in self.intervals]
        is_empty = (
            (self.rounds is not None and self.rounds[0] > rounds)
            or plain.get("clients") == []
            or plain.get("classes") == []
            or plain.get("dropout") == 0
        )
        return {} if is_empty or plain == {"intervals": []} else plain


def read_trace(path: Path) -> tuple[tuple[int, int, int], ...]:
    """(client, first round, end) of each line, sorted; a ValueError names the first bad line and the reason."""
    try:
        table = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
        lines, header = list(table), tuple(table.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"trace: {path}: not readable ({error})") from error
    if set(header) != set(COLUMNS):
        raise ValueError(f"trace: {path}: expected the columns {','.join(COLUMNS)}, found {','.join(header) or 'none'}")
    intervals = []
    for number, line in enumerate(lines, 2):
        where = f"trace: {path}, line {number}"
        try:
            client, first = int(line["client"]), int(line["from"])
            end = int(line["until"]) if line["until"] else None
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: expected whole numbers client,from,until, found {line}") from error
        if client < 0 or first < 1 or (end is not None and end < first) or None in line:
            text = ",".join(filter(None, [line["client"], line["from"], line["until"], *line.get(None, [])]))
            raise ValueError(f"{where}: expected client >= 0 and 1 <= from <= until, found {text}")
        if end != first:  # an empty interval
            intervals.append((client, first, end if end is not None else END))
    return tuple(sorted(set(intervals)))


END = 2**31 - 1  # an absence without a return
