"""A round is run as if all replies were finite; if one was not, it is run again with every reply checked first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from unskew.base.errors import UserError
from unskew.server.client_store import ClientStore
from unskew.server.snapshot import Snapshot

if TYPE_CHECKING:
    from unskew.engines.engine import Engine

T = TypeVar("T")


def retry_if_nonfinite(
    engine: Engine, store: ClientStore, before: Snapshot, play: Callable[[], T], check_losses: Callable[[], None]
) -> T:
    """The result of `play` for the round after `before`, once the engine has found all replies to be finite.

    `check_losses` may refuse the round; its error comes before one of the round itself.
    """
    held = before.versions()
    while True:
        try:
            done = play()
        except Exception:
            if engine.verify_finite():  # otherwise the error may come from numbers that were not checked yet
                check_losses()
                raise
        else:
            if engine.verify_finite():
                check_losses()
                return done
        if changed := [place for place, version in before.versions().items() if version != held[place]]:
            raise UserError(
                f"{' '.join(changed[0])} of the server was changed in place, in a round with a message that is not "
                "finite; merge, step and collect return a changed copy, so that a round can be played again"
            )
        store.rollback()
