"""A round on trust: played as if all messages were finite, and once more, looking first, where one was not."""

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
    engine: Engine, store: ClientStore, before: Snapshot, play: Callable[[], T], look: Callable[[], None]
) -> T:
    """What `play` gives of a round from `before`, when the engine answers for every message.

    `look` refuses what a settled round must not have; it comes before an error of the round itself.
    """
    held = before.versions()
    while True:
        try:
            done = play()
        except Exception:
            if engine.verify_finite():  # else it may be due to the numbers that nobody has looked at
                look()
                raise
        else:
            if engine.verify_finite():
                look()
                return done
        if changed := [place for place, version in before.versions().items() if version != held[place]]:
            raise UserError(
                f"{' '.join(changed[0])} of the server was changed in place, in a round with a message that is not "
                "finite; merge, step and collect return a changed copy, so that a round can be played again"
            )
        store.rollback()
