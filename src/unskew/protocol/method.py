"""A method is a list of parts in order: one objective, one owner of the model, and what else was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import torch

from unskew.base.errors import UserError
from unskew.protocol.part import Part
from unskew.protocol.update_codec import UpdateLocation
from unskew.protocol.work import Work

P = TypeVar("P", bound=Part)


@dataclass(frozen=True)
class Task:
    """What a part may know about the federation at build time."""

    clients: int
    classes: int
    shape: tuple[int, ...]
    rounds: int
    work_at: Callable[[int], Work]  # the work of a round, before `at_round`
    preset: str = "paper"

    @property
    def work(self) -> Work:
        """The work of round 1."""
        return self.work_at(1)


@dataclass(frozen=True)
class Method:
    """The parts, in list order."""

    parts: tuple[Part, ...]
    preset: Literal["paper", "released"] = "paper"  # of the run

    def __post_init__(self) -> None:
        for role in ("objective", "owner"):
            names = [part.name for part in self.parts if getattr(part, role)]
            if len(names) != 1:
                wanted = "one loss that trains the model" if role == "objective" else "one part that merges the model"
                raise UserError(
                    f"method: expected {wanted}, found {', '.join(names) or 'none'}; start from fedavg, "
                    f"as in fedavg+{self.parts[-1].name if self.parts else 'prox'}"
                )

    @property
    def name(self) -> str:
        return "+".join(part.name for part in self.parts)

    @property
    def merge_order(self) -> tuple[Part, ...]:
        """List order, the owner of the model last, so that the others see the old model."""
        return tuple(sorted(self.parts, key=lambda part: part.owner))

    @property
    def seals(self) -> tuple[Part, ...]:
        """Parts that seal messages, in list order; one that must be opened again comes last."""
        found = [part for part in self.parts if type(part).seal is not Part.seal]
        return tuple(sorted(found, key=_opens))

    @property
    def update(self) -> UpdateLocation:
        """Where the update of the model is in a message."""
        owner = next(part for part in self.parts if part.owner)
        for name, artefact in owner.sends.items():
            if artefact.kind == "weights" and artefact.reduce in ("mean", "sum"):
                return UpdateLocation(owner.name, name, artefact.update)
        raise UserError(
            f"method: expected weights from {owner.name}, found {', '.join(owner.sends) or 'nothing'}; there is no "
            f"update for {', '.join(part.name for part in self.seals)} to work on"
        )

    def find(self, kind: type[P]) -> P | None:
        """The sibling of that class, if it is in the list."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def build(self, work: Work) -> Method:
        """Every part meets its siblings."""
        if len(codes := [part.name for part in self.seals if _opens(part)]) > 1:
            raise UserError(f"method: {' and '.join(codes)} both say how the update travels; keep one of them")
        if codes:
            _ = self.update  # stops here if there is none
        return replace(self, parts=tuple(part.build(self, work) for part in self.parts))

    def at_round(self, round: int, task: Task) -> tuple[Method, Work]:
        """The parts and the work in force in a round."""
        parts, work = [], task.work_at(round)
        for part in self.parts:
            part, work = part.at_round(round, work)
            parts.append(part)
        return replace(self, parts=tuple(parts)), work

    def on(self, device: torch.device, dtype: torch.dtype) -> Method:
        """The same parts with float fields as 0-dim tensors: a changing Python number would break a compiled step."""
        return replace(self, parts=tuple(_with_tensors(part, device, dtype) for part in self.parts))


def _opens(part: Part) -> bool:
    return type(part).open is not Part.open


def hyper_parameters(part: Part) -> dict[str, Any]:
    """The fields of a part by name."""
    return {f.name: getattr(part, f.name) for f in fields(part)}  # type: ignore[arg-type]


def _with_tensors(part: Part, device: torch.device, dtype: torch.dtype) -> Part:
    floats = {k: v for k, v in hyper_parameters(part).items() if isinstance(v, float)}
    if not floats:
        return part
    # A second validation would turn the tensors back into numbers, hence no constructor.
    copy = object.__new__(type(part))
    copy.__dict__.update(part.__dict__)
    copy.__dict__.update({name: torch.tensor(value, device=device, dtype=dtype) for name, value in floats.items()})
    return copy
