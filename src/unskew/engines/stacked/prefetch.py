"""Prepares the next round's cohort while the GPU trains: work that takes half a round's time for 50 small clients."""

from __future__ import annotations

from typing import Any

from unskew.client.feed import BatchFeed, ClientPlan, Planner, longest_first
from unskew.engines.engine import EngineContext
from unskew.protocol.part import Part
from unskew.wire.requests_and_replies import Received


class Prefetch:
    """Plans and feeds of the clients that will take part. They depend only on the round, so results stay the same."""

    def __init__(self, context: EngineContext) -> None:
        self._context, self._plans = context, dict[int, dict[int, ClientPlan]]()  # round -> client -> plan
        self._next_feed: BatchFeed | None = None  # of all clients of the next round, if they fit at once
        self._enabled = context.device.type == "cuda"
        self._shapes = dict[Any, Any]()  # feed shapes of earlier cohorts, by the shapes of their plans

    def prepare(self, round: int, max_clients: int) -> BatchFeed | None:
        """Make the plans of a round, once; plans of the round before stay for its remaining cohorts.

        Returns the feed of all its clients, if they fit at once and the round was not prepared before.
        """
        context = self._context
        if not self._enabled or round in self._plans or round > context.task.last_round:
            return None
        method, _ = context.at_round(round)
        if any(type(part).streams is not Part.streams for part in method.parts):
            return None  # plans of streams depend on what the server will send
        self._next_feed = None
        busy = [k for k in context.upcoming(round) if context.client_rows.index[k].shape[0]]
        planner = Planner(context, context.client_rows, round, Received({}, {}))
        self._plans[round] = dict(zip(busy, planner.plans(busy, [{} for _ in busy])))
        if 0 < len(busy) <= max_clients:
            self._next_feed = self._feed(round, longest_first(context.client_rows, busy))
            self._next_feed.reuse_shapes(self._shapes)  # like the next line, cached so that the round does not wait
            _ = self._next_feed.work_done
        return self._next_feed

    def take(self, round: int, clients: list[int]) -> BatchFeed | None:
        """The feed of these clients, if their round was prepared; plans of earlier rounds are dropped."""
        self._plans = {of: plans for of, plans in self._plans.items() if of >= round}
        if not all(k in self._plans.get(round, {}) for k in clients):
            return None
        feed, self._next_feed = self._next_feed, None  # hold no reference once it is taken
        if feed is not None and (feed.round, feed.clients) == (round, clients):
            return feed
        return self._feed(round, clients)

    def _feed(self, round: int, clients: list[int]) -> BatchFeed:
        context, plans = self._context, [self._plans[round][k] for k in clients]
        return BatchFeed(context, context.client_rows, round, Received({}, {}), clients, [{} for _ in clients], plans)
