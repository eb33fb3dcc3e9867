"""A method is an ordered list of parts: one objective, one owner of the model, and any number of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

import torch

from unskew.base.errors import UserError
from unskew.protocol.part import Part
from unskew.protocol.update_codec import UpdateLocation
from unskew.protocol.work import Work

P = TypeVar("P", bound=Part)


@dataclass(frozen=True)
class Task:
    """The federated task, as far as a part may know it before round 1."""

    clients: int
    classes: int
    shape: tuple[int, ...]  # of one row
    last_round: int
    work_at: Callable[[int], Work]  # round -> its work, before the parts' `at_round`
    rules: str = "paper"
    reader: str = ""  # the part that gets it
    readers_of_rounds: set[str] = field(default_factory=set, compare=False)  # parts that have read `rounds`

    @property
    def rounds(self) -> int:
        """The number of rounds. A run whose parts have read it cannot be resumed with more rounds."""
        self.readers_of_rounds.add(self.reader)
        return self.last_round

    def read_by(self, part: str) -> Task:
        """The task for one part; it is noted if the part reads the number of rounds."""
        return replace(self, reader=part)

    @property
    def work(self) -> Work:
        """The work of round 1."""
        return self.work_at(1)


@dataclass(frozen=True)
class Method:
    """The parts, in list order."""

    parts: tuple[Part, ...]
    rules: Literal["paper", "released"] = "paper"  # of the run

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
        """List order with the owner of the model last, so that the other parts merge against the old model."""
        return tuple(sorted(self.parts, key=lambda part: part.owner))

    @property
    def sealing_parts(self) -> tuple[Part, ...]:
        """Parts with a `seal` hook, in list order; the one that also has an `open` hook comes last."""
        sealing = [part for part in self.parts if type(part).seal is not Part.seal]
        return tuple(sorted(sealing, key=_overrides_open))

    @property
    def update_location(self) -> UpdateLocation:
        """Which artefact of a message holds the model update."""
        owner = next(part for part in self.parts if part.owner)
        for name, artefact in owner.sends.items():
            if artefact.kind == "weights" and artefact.reduce in ("mean", "sum"):
                return UpdateLocation(owner.name, name, artefact.update)
        needed_by = [f"{part.name}, which encodes it" for part in self.sealing_parts] or ["max_norm, which limits it"]
        raise UserError(
            f"method: expected {owner.name} to send weights, found {', '.join(owner.sends) or 'nothing'}; a model "
            f"update is needed by {' and '.join(needed_by)}"
        )

    def find(self, kind: type[P]) -> P | None:
        """The part of that class, None if the method has none."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def build(self, work: Work) -> Method:
        """The method after every part's `build`, which checks it against the other parts."""
        if len(codecs := [part.name for part in self.sealing_parts if _overrides_open(part)]) > 1:
            raise UserError(f"method: {' and '.join(codecs)} both encode the update; keep one of them")
        if codecs:
            _ = self.update_location  # raises if there is no update to encode
        return replace(self, parts=tuple(part.build(self, work) for part in self.parts))

    def at_round(self, round: int, task: Task) -> tuple[Method, Work]:
        """The parts and the work of a round, after every part's `at_round`."""
        parts, work = [], task.work_at(round)
        for part in self.parts:
            part, work = part.at_round(round, work)
            parts.append(part)
        return replace(self, parts=tuple(parts)), work

    def with_tensor_fields(self, device: torch.device, dtype: torch.dtype) -> Method:
        """The same parts with float fields as 0-dim tensors: a changing Python number would break a compiled step."""
        return replace(self, parts=tuple(_part_with_tensor_fields(part, device, dtype) for part in self.parts))


def _overrides_open(part: Part) -> bool:
    return type(part).open is not Part.open


def hyper_parameters(part: Part) -> dict[str, Any]:
    """The fields of a part by name."""
    return {f.name: getattr(part, f.name) for f in fields(part)}  # type: ignore[arg-type]


def _part_with_tensor_fields(part: Part, device: torch.device, dtype: torch.dtype) -> Part:
    floats = {k: v for k, v in hyper_parameters(part).items() if isinstance(v, float)}
    if not floats:
        return part
    # The constructor would validate again and turn the tensors back into numbers, so it is not called.
    copy = object.__new__(type(part))
    copy.__dict__.update(part.__dict__)
    copy.__dict__.update({name: torch.tensor(value, device=device, dtype=dtype) for name, value in floats.items()})
    return copy
