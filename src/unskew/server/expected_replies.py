"""Contracts of a run: what each phase's replies must look like, derived when first needed and remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unskew.base.errors import UserError
from unskew.base.tree import flatten
from unskew.client.dry_run import DryRun
from unskew.engines.engine import one_thread
from unskew.models.model import Model
from unskew.protocol.method import Method, Task
from unskew.wire.contract import Contract, RefusedError
from unskew.wire.message import Received

FEW_ROWS = 1  # a form that is the same for so few rows and for the most that were reported does not depend on them
MANY_ROWS = 10_000  # beyond which bounds are scaled: a client's number must not decide how much the server computes
USUAL_ROWS = 100
REMEMBERED = 1_000  # contracts of clients with other numbers of rows
ContractOf = Callable[[int], Contract]  # by the number of rows that a client reports


@dataclass
class _Phase:
    """What contracts of a phase were derived from, and the contracts."""

    parts: tuple[Any, ...]
    form: Any
    by_rows: dict[int, Contract] = field(default_factory=dict)
    alike: Contract | None = None  # of all clients with at most `most` rows
    most: int = 0


class ExpectedReplies:
    """The contracts of a run's phases."""

    def __init__(self) -> None:
        self._phases: dict[str, _Phase] = {}

    def training(
        self, method: Method, model: Model, task: Task, round: int, received: Received, sealed: bool = True
    ) -> ContractOf:
        """Of what clients send after training; what trains for an absent client seals nothing."""
        phase = self._phase("training" if sealed else "stand-ins", method, received._asdict())
        return lambda rows: _contract(
            phase, rows, lambda n: DryRun(method, model, task, round, received, n).training(sealed)
        )

    def sharing(
        self, method: Method, model: Model, task: Task, round: int, received: Received, part: str
    ) -> ContractOf:
        """Of what one part's exchange sends, which sees the model and no broadcasts."""
        phase = self._phase(part, method, {"model": received.model})
        return lambda rows: _contract(
            phase, rows, lambda n: DryRun(method, model, task, round, received, n).sharing(part)
        )

    def _phase(self, name: str, method: Method, received: dict[str, Any]) -> _Phase:
        """What is known of a phase; forgotten when the method's parts or the form of what they receive change."""
        form = {path: (t.dtype, t.shape) for path, t in flatten(received).items()}
        phase = self._phases.get(name)
        if phase is None or (phase.parts, phase.form) != (method.parts, form):
            phase = self._phases[name] = _Phase(method.parts, form)
        return phase


def _contract(phase: _Phase, rows: int, derive: Callable[[int], Contract]) -> Contract:
    if rows > MANY_ROWS:
        return _contract(phase, MANY_ROWS, derive).for_rows(MANY_ROWS, rows)
    if phase.alike is not None and rows <= phase.most:
        return phase.alike
    if rows in phase.by_rows:
        return phase.by_rows[rows]
    found = _derived(rows, derive)
    if not isinstance(found, Contract):
        # Whose fault is it: the method's, which runs on no zeros, or that of a number of rows that cannot be?
        if isinstance(usual := _derived(USUAL_ROWS, derive), Contract):
            raise RefusedError(f"rows: expected a number for which the method can send something, found {rows}")
        raise UserError(
            "method: expected up, share and seal to run on tensors of zeros, from which the form of every message is "
            f"worked out, found {type(usual).__name__}: {usual}"
        ) from usual
    if not phase.by_rows and found == (phase.alike or _derived(FEW_ROWS, derive)):
        phase.alike, phase.most = phase.alike or found, rows
        return phase.alike
    while len(phase.by_rows) >= REMEMBERED:
        del phase.by_rows[next(iter(phase.by_rows))]
    phase.alike, phase.by_rows[rows] = None, found
    return found


def _derived(rows: int, derive: Callable[[int], Contract]) -> Contract | Exception:
    """The contract, or why there is none: a hook may need more rows than that."""
    try:
        with one_thread():  # small tensors take longer on many cores
            return derive(rows)
    except UserError:
        raise
    except Exception as error:
        return error
