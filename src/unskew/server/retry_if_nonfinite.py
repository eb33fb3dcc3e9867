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
    engine: Engine, store: ClientStore, before: Snapshot, run_round: Callable[[], T], check_losses: Callable[[], None]
) -> T:
    """The result of `run_round` for the round after `before`, once the engine has verified that all replies are finite.

    `check_losses` may raise; its error takes precedence over one of the round itself.
    """
    versions = before.versions()
    while True:
        try:
            result = run_round()
        except Exception:
            if engine.verify_finite():  # otherwise the error may come from numbers that were not checked yet
                check_losses()
                raise
        else:
            if engine.verify_finite():
                check_losses()
                return result
        if changed := [place for place, version in before.versions().items() if version != versions[place]]:
            raise UserError(
                f"{' '.join(changed[0])} of the server was changed in place, in a round with a message that is not "
                "finite; merge, step and collect must return a changed copy, so that a round can be run again"
            )
        store.rollback()
