"""The next round's cohort, made while a GPU trains this one: on 50 small clients half of a round's time otherwise."""

from __future__ import annotations

from typing import Any

from unskew.client.feed import BatchFeed, ClientPlan, Planner, longest_first
from unskew.engines.engine import EngineContext
from unskew.protocol.part import Part
from unskew.wire.message import Received


class Prefetch:
    """What the clients that will take part will do; a pure function of the round, so that nothing else changes."""

    def __init__(self, context: EngineContext) -> None:
        self._context, self._plans = context, dict[int, dict[int, ClientPlan]]()  # round -> client -> plan
        self._whole: BatchFeed | None = None  # all clients of the round that comes, where they fit together
        self._useful = context.device.type == "cuda"
        self._shapes = dict[Any, Any]()  # of cohorts made before, by those of their plans

    def prepare(self, round: int, fit: int) -> BatchFeed | None:
        """Make the plans of a round, once; those of the round before stay, for its cohorts that are still to come.

        The cohort of all of its clients, if that fits and was not made before.
        """
        context = self._context
        if not self._useful or round in self._plans or round > context.task.rounds:
            return None
        method, _ = context.at_round(round)
        if any(type(part).streams is not Part.streams for part in method.parts):
            return None  # a plan of streams needs what the server will send
        self._whole = None
        busy = [k for k in context.upcoming(round) if context.client_rows.index[k].shape[0]]
        planner = Planner(context, context.client_rows, round, Received({}, {}))
        self._plans[round] = dict(zip(busy, planner.plans(busy, [{} for _ in busy])))
        if 0 < len(busy) <= fit:
            self._whole = self._cohort(round, longest_first(context.client_rows, busy))
            self._whole.recall(self._shapes)  # kept there, as what follows, so that the round does not wait for it
            _ = self._whole.ending
        return self._whole

    def take(self, round: int, clients: list[int]) -> BatchFeed | None:
        """The cohort of these clients if their round was prepared; the rounds before it are over."""
        self._plans = {of: plans for of, plans in self._plans.items() if of >= round}
        if not all(k in self._plans.get(round, {}) for k in clients):
            return None
        whole, self._whole = self._whole, None  # whoever takes it lets go of it
        if whole is not None and (whole.round, whole.clients) == (round, clients):
            return whole
        return self._cohort(round, clients)

    def _cohort(self, round: int, clients: list[int]) -> BatchFeed:
        context, plans = self._context, [self._plans[round][k] for k in clients]
        return BatchFeed(context, context.client_rows, round, Received({}, {}), clients, [{} for _ in clients], plans)
