"""The next round's plan, made while a GPU trains this one: on 50 small clients half of a round's time otherwise."""

from __future__ import annotations

from unskew.core.client import Received
from unskew.core.part import Part
from unskew.engine.base import Setting
from unskew.engine.feed import ClientPlan


class Ahead:
    """Plans of the clients that will take part; a plan is a pure function of the round, so nothing else changes."""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._plans = setting, dict[int, dict[int, ClientPlan]]()  # round -> client -> plan
        self._useful = setting.device.type == "cuda"

    def prepare(self, round: int) -> None:
        """Make the plans of a round, once; those of the round before stay, for its cohorts that are still to come."""
        setting = self._setting
        if not self._useful or round in self._plans or round > setting.task.rounds:
            return
        method, work = setting.planned(round)
        if any(type(part).streams is not Part.streams for part in method.parts):
            return  # a plan of streams needs what the server will send
        nothing = Received({}, {})
        self._plans[round] = {
            k: ClientPlan(setting, setting.source, method, work, round, nothing, k, {})
            for k in setting.plan.participants(round)
            if len(setting.source.index[k])
        }

    def take(self, round: int) -> dict[int, ClientPlan]:
        """What is ready for a round; the rounds before it are over."""
        self._plans = {of: plans for of, plans in self._plans.items() if of >= round}
        return self._plans.get(round, {})
