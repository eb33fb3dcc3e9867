"""The next round's cohort, made while a GPU trains this one: on 50 small clients half of a round's time otherwise."""

from __future__ import annotations

from typing import Any

from unskew.client.feed import ClientPlan, Cohort, Planner, longest_first
from unskew.client.round import Received
from unskew.engines.engine import Setting
from unskew.protocol.part import Part


class Ahead:
    """What the clients that will take part will do; a pure function of the round, so that nothing else changes."""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._plans = setting, dict[int, dict[int, ClientPlan]]()  # round -> client -> plan
        self._whole: Cohort | None = None  # all clients of the round that comes, where they fit together
        self._useful = setting.device.type == "cuda"
        self._shapes = dict[Any, Any]()  # of cohorts made before, by those of their plans

    def prepare(self, round: int, fit: int) -> Cohort | None:
        """Make the plans of a round, once; those of the round before stay, for its cohorts that are still to come.

        The cohort of all of its clients, if that fits and was not made before.
        """
        setting = self._setting
        if not self._useful or round in self._plans or round > setting.task.rounds:
            return None
        method, _ = setting.planned(round)
        if any(type(part).streams is not Part.streams for part in method.parts):
            return None  # a plan of streams needs what the server will send
        self._whole = None
        busy = [k for k in setting.plan.participants(round) if setting.source.index[k].shape[0]]
        planner = Planner(setting, setting.source, round, Received({}, {}))
        self._plans[round] = dict(zip(busy, planner.plans(busy, [{} for _ in busy])))
        if 0 < len(busy) <= fit:
            self._whole = self._cohort(round, longest_first(setting.source, busy))
            self._whole.recall(self._shapes)  # kept there, as what follows, so that the round does not wait for it
            _ = self._whole.ending
        return self._whole

    def take(self, round: int, clients: list[int]) -> Cohort | None:
        """The cohort of these clients if their round was prepared; the rounds before it are over."""
        self._plans = {of: plans for of, plans in self._plans.items() if of >= round}
        if not all(k in self._plans.get(round, {}) for k in clients):
            return None
        whole, self._whole = self._whole, None  # whoever takes it lets go of it
        if whole is not None and (whole.round, whole.clients) == (round, clients):
            return whole
        return self._cohort(round, clients)

    def _cohort(self, round: int, clients: list[int]) -> Cohort:
        setting, plans = self._setting, [self._plans[round][k] for k in clients]
        return Cohort(setting, setting.source, round, Received({}, {}), clients, [{} for _ in clients], plans)
