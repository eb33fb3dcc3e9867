"""A cohort received as one has the same effect as its clients one by one, for every method."""

from dataclasses import replace

import pytest
import small
import torch
from small import federation

from unskew.base.tree import State, flatten
from unskew.server.federation import Federation
from unskew.server.inbox import Inbox
from unskew.wire.ledger import LedgerEntry
from unskew.wire.requests_and_replies import CohortReply

AS_COHORT = ("fedavg", "fedprox", "fedlmd", "scaffold", "moon", "fednova")


def run_rounds(fed: Federation) -> tuple[State, list[LedgerEntry], list]:
    """Server and clients after two rounds, the ledger, and the reports."""
    snap, entries, reports = fed.start(), [], []
    for _ in range(2):
        snap, report = fed.run_round(snap)
        fed.store.commit()
        entries += snap.ledger.entries
        order = [list(report.terms), *(list(terms) for terms in report.terms.values())]
        reports.append([report, order, snap.ledger.bytes_up, snap.ledger.bytes_down])
    clients = {str(k): fed.store.get(k) for k in range(3)}
    return flatten({"model": snap.model, "parts": snap.parts, "clients": clients}), entries, reports


def test_cohort_equals_clients_one_by_one(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cohorts: list[list[int]] = []
    receive_cohort = Inbox._receive_cohort

    def recorded(self: Inbox, cohort: CohortReply) -> None:
        cohorts.append(cohort.clients)
        receive_cohort(self, cohort)

    monkeypatch.setattr(Inbox, "_receive_cohort", recorded)
    state, entries, reports = run_rounds(federation(method, "stacked"))
    monkeypatch.setattr(Inbox, "_can_receive_as_cohort", lambda self, cohort: False)
    other, other_entries, other_reports = run_rounds(federation(method, "stacked"))
    assert cohorts == ([[0, 1, 2], [0, 1]] if method in AS_COHORT else cohorts)
    assert entries == other_entries
    assert reports == other_reports
    assert state.keys() == other.keys()
    assert all(torch.equal(state[name], other[name]) for name in state)


@pytest.mark.parametrize("path", ["cohort", "one by one", "loop"])
def test_a_mean_of_integers_is_the_first_clients_value(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """BatchNorm's counter: client 0 runs 2 x 2 steps, and client 2, the first in the stack, 2 x 3."""
    monkeypatch.setattr(small, "NORM_SIZES", (6, 2, 11))
    if path == "one by one":
        monkeypatch.setattr(Inbox, "_can_receive_as_cohort", lambda self, cohort: False)
    fed = federation("fedavg", "loop" if path == "loop" else "stacked", norm=True)
    snap, _ = fed.run_round(fed.start())
    assert [int(t) for name, t in snap.model.items() if name.endswith("num_batches_tracked")] == [4]


@pytest.mark.parametrize("reason", ["recorded", "sealed", "several cohorts"])
def test_clients_that_need_individual_checks_are_received_one_by_one(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inbox, "_receive_cohort", lambda *_: pytest.fail("received as a cohort"))
    fed = federation("fedavg+topk" if reason == "sealed" else "fedavg", "stacked")
    if reason == "recorded":
        fed = replace(fed, should_record=lambda round, client: client == 1)
    if reason == "several cohorts":
        fed.engine.limit = 2  # type: ignore[attr-defined]
    snap, _ = fed.run_round(fed.start())
    recorded = {sent.entry.client for sent in snap.ledger.recorded}
    assert recorded == ({1} if reason == "recorded" else set())
