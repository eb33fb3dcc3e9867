"""Contracts of a run: the form that each phase's replies must have, derived when first needed and cached."""

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
from unskew.wire.requests_and_replies import Received

# If the contract for this few rows equals that for the most rows reported so far, it does not depend on their number.
FEW_ROWS = 1
MAX_DRY_RUN_ROWS = 10_000  # above, bounds are scaled: a client's number must not decide how much the server computes
TYPICAL_ROWS = 100  # a hook that fails for this many rows too is taken to fail for any number
MAX_CACHED = 1_000  # contracts of a phase, by number of rows
ContractForRows = Callable[[int], Contract]  # by the number of rows that a client reports


@dataclass
class _PhaseContracts:
    """The contracts of a phase, with the parts and the form of the broadcasts that they were derived from."""

    parts: tuple[Any, ...]
    received_form: Any
    by_rows: dict[int, Contract] = field(default_factory=dict)
    independent_of_rows: Contract | None = None  # the contract of all clients with at most `max_rows` rows
    max_rows: int = 0


class ExpectedReplies:
    """The contracts of a run's phases."""

    def __init__(self) -> None:
        self._phases: dict[tuple[str, str], _PhaseContracts] = {}

    def training(
        self, method: Method, model: Model, task: Task, round: int, received: Received, sealed: bool = True
    ) -> ContractForRows:
        """The contract of replies to training; a stand-in for an absent client seals nothing."""
        phase = self._phase(("training", "" if sealed else "stand-ins"), method, received._asdict())
        return lambda rows: _contract(
            phase, rows, lambda n: DryRun(method, model, task, round, received, n).training(sealed)
        )

    def sharing(
        self, method: Method, model: Model, task: Task, round: int, received: Received, part: str
    ) -> ContractForRows:
        """The contract of replies to one part's exchange, which sees the model and no broadcasts."""
        phase = self._phase(("sharing", part), method, {"model": received.model})
        return lambda rows: _contract(
            phase, rows, lambda n: DryRun(method, model, task, round, received, n).sharing(part)
        )

    def _phase(self, key: tuple[str, str], method: Method, received: dict[str, Any]) -> _PhaseContracts:
        """The cached contracts; dropped when the method's parts or the form of the broadcasts change."""
        form = {path: (t.dtype, t.shape) for path, t in flatten(received).items()}
        phase = self._phases.get(key)
        if phase is None or (phase.parts, phase.received_form) != (method.parts, form):
            phase = self._phases[key] = _PhaseContracts(method.parts, form)
        return phase


def _contract(phase: _PhaseContracts, rows: int, derive: Callable[[int], Contract]) -> Contract:
    if rows > MAX_DRY_RUN_ROWS:
        return _contract(phase, MAX_DRY_RUN_ROWS, derive).for_rows(MAX_DRY_RUN_ROWS, rows)
    if phase.independent_of_rows is not None and rows <= phase.max_rows:
        return phase.independent_of_rows
    if rows in phase.by_rows:
        return phase.by_rows[rows]
    contract = _derive(rows, derive)
    if not isinstance(contract, Contract):
        # Either this number of rows is impossible, or the method fails for every number: it does not run on zeros.
        if isinstance(error := _derive(TYPICAL_ROWS, derive), Contract):
            raise RefusedError(f"rows: expected a number for which the method can send something, found {rows}")
        raise UserError(
            "method: expected up, share and seal to run on tensors of zeros, from which the form of every message is "
            f"derived, found {type(error).__name__}: {error}"
        ) from error
    if not phase.by_rows and contract == (phase.independent_of_rows or _derive(FEW_ROWS, derive)):
        phase.independent_of_rows, phase.max_rows = phase.independent_of_rows or contract, rows
        return phase.independent_of_rows
    while len(phase.by_rows) >= MAX_CACHED:
        del phase.by_rows[next(iter(phase.by_rows))]
    phase.independent_of_rows, phase.by_rows[rows] = None, contract
    return contract


def _derive(rows: int, derive: Callable[[int], Contract]) -> Contract | Exception:
    """The contract, or the error of a hook that fails on this number of rows, for example because it needs more."""
    try:
        with one_thread():  # small tensors take longer on many cores
            return derive(rows)
    except UserError:
        raise
    except Exception as error:
        return error
