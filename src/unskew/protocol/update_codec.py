"""A message on its way, as `seal` on the client and `open` on the server see it: where the update is, and what it is.

The update is what the owner of the model sends, relative to the received model, of the trained tensors that are not the
client's own. Both sides know its names, shapes and types, so that nothing of that has to travel or to be believed.
A code replaces a tensor by tensors named `tensor word`, such as `0.weight int8`. All else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.tree import Message, PartState, State

Form = dict[str, tuple[torch.dtype, tuple[int, ...]]]  # word -> type and shape of one tensor of a code


class UpdateLocation(NamedTuple):
    """Where the update is in a message."""

    part: str
    artefact: str
    relative: bool  # the artefact is an update already, not a model


@dataclass(frozen=True)
class OutgoingUpdate:
    """One client's message; on the client with the part's own state and draws."""

    message: Message
    place: UpdateLocation
    start: State  # the model that the client received
    names: tuple[str, ...]  # of the tensors in the update
    part_state: PartState = field(default_factory=dict)
    draws: State = field(default_factory=dict)

    mine = property(lambda self: self.part_state)  # the old name, for one version

    @property
    def update(self) -> State:
        """What training changed."""
        sent = self._sent
        return {name: sent[name] if self.place.relative else sent[name] - self.start[name] for name in self.names}

    def with_codes(self, codes: dict[str, State]) -> Message:
        """The message with some tensors of the update replaced by their codes."""
        coded = {f"{name} {word}": t for name, code in codes.items() for word, t in code.items()}
        return self._with({name: t for name, t in self._sent.items() if name not in codes} | coded)

    def codes(self, form: Callable[[Tensor], Form]) -> dict[str, State]:
        """The codes of the tensors for which `form` expects one, exactly as it says; refuses all else by name."""
        sent, codes, agreed = self._sent, {}, Form()
        for name, like in self.start.items():
            code = form(like) if name in self.names else {}
            if code:
                agreed |= {f"{name} {word}": what for word, what in code.items()}
                codes[name] = {word: sent.get(f"{name} {word}") for word in code}
            elif name in self.names or name in sent:  # what is no part of the update need not be there
                agreed[name] = like.dtype, tuple(like.shape)
        for key, (dtype, shape) in agreed.items():
            self._check(key, sent.get(key), dtype, shape)
        if strange := sorted(sent.keys() - agreed):
            raise UserError(f"{self._where}: expected only what was agreed on, found {strange[0]!r} too")
        return cast(dict[str, State], codes)

    def with_update(self, update: State) -> Message:
        """The message with tensors of the update in the place of their codes, as if they had been sent in full."""
        whole = {name: d if self.place.relative else self.start[name] + d for name, d in update.items()}
        known = self._sent | whole
        return self._with({name: known[name] for name in self.start if name in known})

    def refuse_unless(self, fine: dict[str, Tensor], wanted: str) -> None:
        """Stop at the first tensor whose answer [] is no; one look at the device for all of them."""
        names, answers = list(fine), torch.stack(list(fine.values())).tolist() if fine else []
        if bad := [name for name, yes in zip(names, answers) if not yes]:
            raise UserError(f"{self._where}: {bad[0]}: expected {wanted}, found something else")

    def _check(self, key: str, t: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        if t is None or (t.dtype, tuple(t.shape)) != (dtype, shape):
            found = "nothing" if t is None else f"{t.dtype} of shape {list(t.shape)}"
            raise UserError(f"{self._where}: {key}: expected {dtype} of shape {list(shape)}, found {found}")

    @property
    def _sent(self) -> State:
        sent = self.message.get(self.place.part, {}).get(self.place.artefact)
        if not isinstance(sent, dict):
            raise UserError(f"{self._where}: expected the update of the model, found nothing")
        return sent

    @property
    def _where(self) -> str:
        return f"{self.place.part}/{self.place.artefact}"

    def _with(self, value: State) -> Message:
        part, artefact, _ = self.place
        return self.message | {part: self.message[part] | {artefact: value}}
