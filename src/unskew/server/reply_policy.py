"""When a reply is refused: the policy of a run, and the checks of a reply's form and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from unskew.base.errors import UserError
from unskew.base.tree import Message, State, Value, as_state
from unskew.protocol.method import Method
from unskew.protocol.part import Artefact, Part
from unskew.protocol.update_codec import OutgoingUpdate, UpdateLocation
from unskew.wire.contract import Contract, RefusedError

Declared = dict[str, dict[str, Artefact]]  # part -> artefact -> declaration
MAX_TERMS = 64
LOGGED_NAME = re.compile(r"[\w ./-]{1,40}")
TERM_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class ReplyPolicy:
    """When a reply is refused although it has the agreed form, and how many replies a round needs."""

    quorum: float | None = None  # share of the sampled clients that must answer; None: one answer or stand-in
    on_bad_loss: Literal["stop", "refuse"] = "stop"
    max_norm: float | Mapping[str, float] | None = None  # of the model's update, or by part/artefact
    max_rows: int = 10_000_000  # that a client may report

    def norm_limits(self, method: Method) -> Mapping[str, float]:
        """The largest norm of each artefact that has one, by part/artefact."""
        if self.max_norm is None or isinstance(self.max_norm, Mapping):
            return self.max_norm or {}
        part, artefact, _ = method.update_location
        return {f"{part}/{artefact}": self.max_norm}

    def reaches_quorum(self, sampled: int, answered: int) -> bool:
        """Whether enough of the sampled clients answered for the round to count."""
        return self.quorum is None or sampled == 0 or (answered > 0 and answered / sampled >= self.quorum)


def check_shared(shared: Message, contracts: dict[str, Contract]) -> None:
    """Refuse artefacts of exchanges after training with other names, types or shapes than agreed."""
    expected = {part: contract for part, contract in contracts.items() if contract.specs}
    if not isinstance(shared, dict) or shared.keys() != expected.keys():
        sent = _part_names(shared) if isinstance(shared, dict) else type(shared).__name__
        raise RefusedError(f"exchanges after training: expected {_part_names(expected)}, found {sent}")
    for part, contract in expected.items():
        contract.check({part: shared[part]})


def _part_names(by_part: Mapping[str, object]) -> str:
    return ", ".join(sorted(str(name)[:40] for name in by_part)) or "nothing"


def check_terms(terms: State, method: Method) -> None:
    """Refuse terms other than a number of a part with a loss (`ce`) and the numbers that it logs (`flea kd`)."""
    if not isinstance(terms, dict) or len(terms) > MAX_TERMS:
        size = f"{len(terms)} of them" if isinstance(terms, dict) else type(terms).__name__
        raise RefusedError(f"loss terms: expected at most {MAX_TERMS} by name, found {size}")
    parts = {part.name for part in method.parts if type(part).loss is not Part.loss}
    for name, term in terms.items():
        part, _, number = name.partition(" ")
        known = part in parts and (not number or LOGGED_NAME.fullmatch(number))
        if not known:
            raise RefusedError(f"loss terms: expected a number of one of the parts, found {name[:40]!r}")
        if not isinstance(term, Tensor) or term.ndim or term.dtype not in TERM_DTYPES:
            form = f"{term.dtype} {list(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
            raise RefusedError(f"loss terms: expected one floating-point number for {name[:40]!r}, found {form}")


def unsealed(message: Message, method: Method, model: State, trained_names: tuple[str, ...]) -> Message:
    """The message as it was before the parts sealed it."""
    try:
        for part in reversed(method.sealing_parts):
            message = part.open(OutgoingUpdate(message, method.update_location, model, trained_names))
    except UserError as error:
        raise RefusedError(str(error)) from error
    return message


def check_labels(declared: Declared, message: Message, classes: int) -> None:
    """Integer labels must be valid class numbers: any other would crash the training that uses them."""
    for part, sent in message.items():
        for name, value in sent.items():
            if declared[part][name].kind == "labels":
                for t in tree_leaves(value):
                    if not t.is_floating_point() and t.numel() and not 0 <= int(t.min()) <= int(t.max()) < classes:
                        raise RefusedError(
                            f"{part}/{name}: expected labels in 0..{classes - 1}, found {int(t.min())} to "
                            f"{int(t.max())}"
                        )


def check_norms(message: Message, limits: Mapping[str, float], location: UpdateLocation | None, model: State) -> None:
    """Refuse artefacts above their limit; `location` is None where the message has no update of the model."""
    for name, norm in _norms(message, location, model):
        if name in limits and not norm <= limits[name]:
            raise RefusedError(f"{name}: expected a norm of at most {limits[name]:g}, found {norm:g}")


def _norms(message: Message, location: UpdateLocation | None, model: State) -> Iterator[tuple[str, float]]:
    """The norm of every artefact: of the model as a difference from the model that was sent, running statistics
    included; of others as they are."""
    for part, sent in message.items():
        for name, value in sent.items():
            if location is not None and (part, name) == (location.part, location.artefact) and not location.relative:
                value = {key: t - model[key] for key, t in as_state(value).items() if t.is_floating_point()}
            yield f"{part}/{name}", _norm(value)


def _norm(value: Value) -> float:
    squares = [t.double().pow(2).sum() for t in tree_leaves(value) if t.is_floating_point()]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
