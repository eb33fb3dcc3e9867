"""A message in transit, as `seal` on the client and `open` on the server see it, with access to its model update.

The update is the difference between the model that the owner part sends and the received model, for the trained tensors
that are not private to the client. Both sides know its names, shapes and dtypes from the received model, so these are
not sent and need not be trusted. Encoding replaces a tensor by one or more code tensors named `tensor word`, such as
`0.weight int8`. The rest of the message stays unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.tree import Message, PartState, State

CodeFormat = dict[str, tuple[torch.dtype, tuple[int, ...]]]  # word -> dtype and shape of that code tensor


class UpdateLocation(NamedTuple):
    """Which artefact of a message holds the model update."""

    part: str
    artefact: str
    relative: bool  # the artefact holds the update itself instead of the whole model


@dataclass(frozen=True)
class OutgoingUpdate:
    """One client's message; on the client's side also the part's state and draws."""

    message: Message
    place: UpdateLocation
    start: State  # the model that the client received
    names: tuple[str, ...]  # of the tensors in the update
    part_state: PartState = field(default_factory=dict)
    draws: State = field(default_factory=dict)  # this part's "seal" draws

    mine = property(lambda self: self.part_state)  # the old name, for one version

    @property
    def update(self) -> State:
        """Trained minus received model, for every tensor of the update."""
        sent = self._sent
        return {name: sent[name] if self.place.relative else sent[name] - self.start[name] for name in self.names}

    def with_codes(self, codes: dict[str, State]) -> Message:
        """The message with these tensors of the update replaced by their code tensors, {name: {word: tensor}}."""
        coded = {f"{name} {word}": t for name, code in codes.items() for word, t in code.items()}
        return self._with({name: t for name, t in self._sent.items() if name not in codes} | coded)

    def codes(self, format_of: Callable[[Tensor], CodeFormat]) -> dict[str, State]:
        """The code tensors, {name: {word: tensor}}, of every tensor of the update that `format_of` gives a format.

        Refuses, by name, a message whose tensors differ from these formats or from the received model's tensors.
        """
        sent, codes, expected = self._sent, {}, CodeFormat()
        for name, like in self.start.items():
            code = format_of(like) if name in self.names else {}
            if code:
                expected |= {f"{name} {word}": dtype_and_shape for word, dtype_and_shape in code.items()}
                codes[name] = {word: sent.get(f"{name} {word}") for word in code}
            elif name in self.names or name in sent:  # tensors outside the update are optional
                expected[name] = like.dtype, tuple(like.shape)
        for key, (dtype, shape) in expected.items():
            self._check(key, sent.get(key), dtype, shape)
        if unexpected := sorted(sent.keys() - expected):
            raise UserError(f"{self._path}: expected only the declared tensors, found {unexpected[0]!r} too")
        return cast(dict[str, State], codes)

    def with_update(self, update: State) -> Message:
        """The message with decoded tensors in place of their codes, as if they had been sent in full."""
        decoded = {name: d if self.place.relative else self.start[name] + d for name, d in update.items()}
        tensors = self._sent | decoded
        return self._with({name: tensors[name] for name in self.start if name in tensors})

    sealed, opened = with_codes, with_update  # the old names, for one version

    def refuse_unless(self, valid: dict[str, Tensor], expected: str) -> None:
        """Raise for the first tensor whose 0-dim bool is False; all of them are read from the device at once."""
        names, flags = list(valid), torch.stack(list(valid.values())).tolist() if valid else []
        if invalid := [name for name, flag in zip(names, flags) if not flag]:
            raise UserError(f"{self._path}: {invalid[0]}: expected {expected}, found other values")

    def _check(self, key: str, t: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        if t is None or (t.dtype, tuple(t.shape)) != (dtype, shape):
            given = "nothing" if t is None else f"{t.dtype} of shape {list(t.shape)}"
            raise UserError(f"{self._path}: {key}: expected {dtype} of shape {list(shape)}, found {given}")

    @property
    def _sent(self) -> State:
        sent = self.message.get(self.place.part, {}).get(self.place.artefact)
        if not isinstance(sent, dict):
            raise UserError(f"{self._path}: expected the model update, found nothing")
        return sent

    @property
    def _path(self) -> str:
        return f"{self.place.part}/{self.place.artefact}"

    def _with(self, value: State) -> Message:
        part, artefact, _ = self.place
        return self.message | {part: self.message[part] | {artefact: value}}
