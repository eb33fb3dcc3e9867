"""A cohort that is taken in at once leaves what its clients leave one by one, for every method."""

from dataclasses import replace

import pytest
import small
import torch
from small import federation

from unskew.base.tree import State, flatten
from unskew.server.federation import Federation
from unskew.server.inbox import Inbox
from unskew.wire.ledger import LedgerEntry
from unskew.wire.message import CohortReply

AT_ONCE = ("fedavg", "fedprox", "fedlmd", "scaffold", "moon", "fednova")


def played(fed: Federation) -> tuple[State, list[LedgerEntry], list]:
    """Server and clients after two rounds, the ledger, and what the rounds reported."""
    snap, entries, told = fed.start(), [], []
    for _ in range(2):
        snap, report = fed.play(snap)
        fed.store.commit()
        entries += snap.ledger.entries
        order = [list(report.terms), *(list(terms) for terms in report.terms.values())]
        told.append([report, order, snap.ledger.bytes_up, snap.ledger.bytes_down])
    clients = {str(k): fed.store.get(k) for k in range(3)}
    return flatten({"model": snap.model, "parts": snap.parts, "clients": clients}), entries, told


def test_at_once_or_one_by_one(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    rows = Inbox._take_in_cohort

    def counted(self: Inbox, some: CohortReply) -> None:
        seen.append(some.clients)
        rows(self, some)

    monkeypatch.setattr(Inbox, "_take_in_cohort", counted)
    state, entries, told = played(federation(method, "stacked"))
    monkeypatch.setattr(Inbox, "_at_once", lambda self, some: False)
    other, also, same = played(federation(method, "stacked"))
    assert seen == ([[0, 1, 2], [0, 1]] if method in AT_ONCE else seen)
    assert entries == also
    assert told == same
    assert state.keys() == other.keys()
    assert all(torch.equal(state[name], other[name]) for name in state)


@pytest.mark.parametrize("how", ["at once", "one by one", "loop"])
def test_a_mean_of_whole_numbers_is_the_first_clients(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """BatchNorm's counter: client 0 takes 2 x 2 steps, and client 2, the first of the stack, 2 x 3."""
    monkeypatch.setattr(small, "NORM_SIZES", (6, 2, 11))
    if how == "one by one":
        monkeypatch.setattr(Inbox, "_at_once", lambda self, some: False)
    fed = federation("fedavg", "loop" if how == "loop" else "stacked", norm=True)
    snap, _ = fed.play(fed.start())
    assert [int(t) for name, t in snap.model.items() if name.endswith("num_batches_tracked")] == [4]


@pytest.mark.parametrize("why", ["recorded", "sealed", "several cohorts"])
def test_clients_that_must_be_seen_are_taken_in_one_by_one(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "_take_in_cohort", lambda *_: pytest.fail("taken in at once"))
    fed = federation("fedavg+topk" if why == "sealed" else "fedavg", "stacked")
    if why == "recorded":
        fed = replace(fed, keeps=lambda round, client: client == 1)
    if why == "several cohorts":
        fed.engine.limit = 2  # type: ignore[attr-defined]
    snap, _ = fed.play(fed.start())
    kept = {sent.entry.client for sent in snap.ledger.kept}
    assert kept == ({1} if why == "recorded" else set())
