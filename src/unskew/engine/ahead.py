"""The next round's cohort, made while a GPU trains this one: on 50 small clients half of a round's time otherwise."""

from __future__ import annotations

from unskew.core.client import Received
from unskew.core.part import Part
from unskew.engine.base import Setting
from unskew.engine.feed import ClientPlan, Cohort, longest_first


class Ahead:
    """What the clients that will take part will do; a pure function of the round, so that nothing else changes."""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._plans = setting, dict[int, dict[int, ClientPlan]]()  # round -> client -> plan
        self._whole: Cohort | None = None  # all clients of the round that comes, where they fit together
        self._useful = setting.device.type == "cuda"

    def prepare(self, round: int, fit: int) -> None:
        """Make the plans of a round, once; those of the round before stay, for its cohorts that are still to come."""
        setting = self._setting
        if not self._useful or round in self._plans or round > setting.task.rounds:
            return
        method, work = setting.planned(round)
        if any(type(part).streams is not Part.streams for part in method.parts):
            return  # a plan of streams needs what the server will send
        nothing, self._whole = Received({}, {}), None
        busy = [k for k in setting.plan.participants(round) if len(setting.source.index[k])]
        self._plans[round] = {k: ClientPlan(setting, setting.source, method, work, round, nothing, k, {}) for k in busy}
        if 0 < len(busy) <= fit:
            self._whole = self._cohort(round, longest_first(setting.source, busy))
            _ = self._whole.shapes  # kept there, so that the round does not wait for it

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
        setting, plans = self._setting, self._plans[round]
        return Cohort(setting, setting.source, round, Received({}, {}), clients, [{} for _ in clients], plans)
