"""Absence: the scenarios' rounds, drawn absences, traces, and that every plan is consistent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew as us
from unskew.base.errors import UserError
from unskew.config import recipe
from unskew.config.absence_config import END, AbsenceConfig, read_trace
from unskew.runner.resolve_absence import RunFacts, intervals_of, resolve
from unskew.server.absence import Absence, RandomDropout, RandomSessions
from unskew.server.sampling import Sampling

SIZES = [10, 40, 20, 30]  # ranked: 1, 3, 2, 0
COUNTS = np.array([[5, 5, 0], [0, 40, 0], [10, 0, 10], [5, 5, 20]])


def resolved(settings: dict, rounds: int = 300, sizes: list[int] = SIZES, seed: int = 0) -> list[list[int]]:
    config = AbsenceConfig(**settings)
    return intervals_of(resolve(config, RunFacts(len(sizes), rounds, seed, lambda: sizes, lambda: COUNTS)))


@pytest.mark.parametrize(
    ("scenario", "intervals"),
    [  # the paper's iterations of 300, which count from 0
        ("pilot", [[1, 51, 101]]),
        ("temporary", [[1, 101, 201]]),
        ("permanent", [[1, 101, END]]),
        ("sequential", [[0, 251, END], [1, 101, END], [2, 201, END], [3, 151, END]]),
        ("two-groups", [[0, 1, 101], [1, 101, END], [2, 1, 101], [3, 101, END]]),
    ],
)
def test_scenarios_have_the_papers_clients_and_rounds(scenario: str, intervals: list[list[int]]) -> None:
    assert resolved({"scenario": scenario}) == intervals


def test_eight_clients_leave_two_at_a_time_in_a_drawn_order() -> None:
    eight = resolved({"scenario": "sequential"}, sizes=[5] * 8)
    assert sorted(first for _, first, _ in eight) == [101, 101, 151, 151, 201, 201, 251, 251]
    assert {k for k, _, _ in eight} == set(range(8))
    assert eight == resolved({"scenario": "sequential"}, sizes=[5] * 8)
    assert eight != resolved({"scenario": "sequential"}, sizes=[5] * 8, seed=1)


def test_ranks_and_classes_are_resolved_after_the_split() -> None:
    assert resolved({"clients": "largest", "rounds": (2, 4)}) == [[1, 2, 4]]
    assert resolved({"clients": "largest 4", "rounds": (2, 4)}) == [[0, 2, 4]]
    assert resolved({"clients": "largest 2", "rounds": (1, 2)}, sizes=[7, 7, 7]) == [[1, 1, 2]], "ties by number"
    with pytest.raises(UserError, match="expected a rank up to 4, found largest 5"):
        resolved({"clients": "largest 5", "rounds": (2, 4)})
    assert resolved({"classes": [0], "share": 0.3, "rounds": (1, 3)}) == [[2, 1, 3]], "10 of 20 rows of class 0"
    assert resolved({"classes": [0, 2], "share": 0.25, "rounds": (1, 3)}) == [[2, 1, 3], [3, 1, 3]]
    assert resolved({"classes": [0], "share": 0.25, "rounds": (1, 3)}) == [[2, 1, 3]], "more than a share, not as much"
    with pytest.raises(UserError, match=r"expected classes in 0\.\.2, found 3"):
        resolved({"classes": [3], "rounds": (1, 3)})


def test_dropout_has_its_share_and_differs_by_round_and_seed() -> None:
    """200 clients in 500 rounds: standard deviation of the mean 0.00145."""
    sampling = Sampling(3, 200, 0.1, (RandomDropout(0.3),))
    away = [set(sampling.absent(t)) for t in range(1, 501)]
    assert np.mean([len(each) for each in away]) / 200 == pytest.approx(0.3, abs=5 * 0.00145)
    assert len({tuple(sorted(each)) for each in away}) == 500
    assert away[0] != set(Sampling(4, 200, 0.1, (RandomDropout(0.3),)).absent(1))


def test_sessions_have_their_mean_lengths_in_a_steady_state() -> None:
    """Mean lengths 5 on and 2 off: 2 of 7 clients are away in every round, the first included."""
    sampling = Sampling(0, 3000, 0.1, (RandomSessions(5, 2),))
    away = np.zeros((60, 3000), dtype=bool)
    for t in range(60):
        away[t, sampling.absent(t + 1)] = True
    share = away.mean(1)
    deviation = (2 / 7 * 5 / 7 / 3000) ** 0.5
    assert np.abs(share - 2 / 7).max() < 5 * deviation
    left = (~away[:-1] & away[1:]).sum() / (~away[:-1]).sum()
    back = (away[:-1] & ~away[1:]).sum() / away[:-1].sum()
    assert (left, back) == (pytest.approx(1 / 5, abs=0.01), pytest.approx(1 / 2, abs=0.02))
    # A resume asks for round 40 first; another run's rounds in between change nothing.
    Sampling(9, 3000, 0.1, (RandomSessions(5, 2),)).absent(17)
    assert Sampling(0, 3000, 0.1, (RandomSessions(5, 2),)).absent(40) == list(np.flatnonzero(away[39]))
    assert sampling.absent(12) == list(np.flatnonzero(away[11]))


def test_absence_of_nobody_is_no_absence() -> None:
    plain = us.Experiment(rounds=6)
    for nobody in ([], [{"clients": [], "rounds": [1, 3]}], [{"dropout": 0}], [{"clients": [0], "rounds": [7, 9]}]):
        assert us.Experiment(rounds=6, absence=nobody).identity() == plain.identity(), nobody
    assert us.Experiment(rounds=6, absence="temporary").identity() != plain.identity()
    first = us.Experiment(rounds=6, absence=[{"clients": [1], "rounds": [2, 3]}])
    assert first.identity() == "087296b3", "the identity of runs from before scenarios had names"


def test_a_trace_belongs_to_the_run_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("client,from,until\n3,2,5\n0,1,\n2,4,4\n")
    (tmp_path / "b.csv").write_text("from,until,client\n1,,0\n2,5,3\n")
    assert read_trace(tmp_path / "a.csv") == ((0, 1, END), (3, 2, 5)), "sorted, without the empty interval"
    a, b = (us.Experiment(absence={"trace": str(tmp_path / name)}) for name in ("a.csv", "b.csv"))
    assert a.identity() == b.identity()
    recorded = a.resolved()
    (tmp_path / "a.csv").unlink()
    assert recipe.read_recorded(recorded, "run").identity() == a.identity(), "a finished run needs no file"
    (tmp_path / "b.csv").write_text("client,from,until\n0,1,3\n")
    assert us.Experiment(absence={"trace": str(tmp_path / "b.csv")}).identity() != a.identity()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,from\n1,2\n", "expected the columns client,from,until, found client,from"),
        ("client,from,until\n1,2,3\nx,2,3\n", "line 3: expected whole numbers client,from,until"),
        ("client,from,until\n1,0,3\n", "line 2: expected client >= 0 and 1 <= from <= until, found 1,0,3"),
        ("client,from,until\n1,5,3\n", "line 2: expected client >= 0 and 1 <= from <= until, found 1,5,3"),
        ("client,from,until\n-1,2,3\n", "line 2"),
        ("client,from,until\n1,2,3,4\n", "line 2"),
        ("client,from,until\n1\n", "line 2"),
    ],
)
def test_a_bad_trace_is_refused_with_file_line_and_reason(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        recipe.validate({"absence": {"trace": str(path)}}, "own")
    assert str(path) in str(refused.value)
    assert message in str(refused.value)
    assert str(refused.value).count("found") <= 1


@pytest.mark.parametrize(
    ("absence", "message"),
    [
        ("temprary", "did you mean temporary?"),
        ({"clients": [0]}, "expected rounds: [first, end]"),
        ({"clients": "big", "rounds": [1, 2]}, "largest 2, found 'big'"),
        ({"clients": [0], "rounds": [3, 3]}, "1 <= first < end"),
        ({"clients": [0], "rounds": [4, 3]}, "1 <= first < end"),
        ({"dropout": 0.1, "classes": [1]}, "found classes and dropout"),
        ({"dropout": 0.1, "rounds": [1, 2]}, "rounds: expected with clients or classes only"),
        ({"dropout": 1.5}, "less than 1, found 1.5"),
        ({"sessions": {"on": 0.5, "off": 1}}, "greater than or equal to 1"),
        ({"clients": [12], "rounds": [1, 2]}, "absence.clients: expected numbers in 0..9, found [12]"),
        ({}, "expected one of scenario, clients, classes, dropout, sessions, trace, found none"),
    ],
)
def test_mistakes_are_refused_by_name(absence: object, message: str) -> None:
    with pytest.raises(UserError) as refused:
        recipe.validate({"absence": absence, "partition": {"name": "iid", "clients": 10}}, "own")
    assert message in str(refused.value)


CLIENTS, ROUNDS = 5, 8
INTERVAL = st.tuples(st.sets(st.integers(-1, CLIENTS)), st.integers(-1, ROUNDS + 2), st.integers(-1, ROUNDS + 2))
OTHERS = st.one_of(
    st.builds(lambda p: {"dropout": p}, st.floats(-0.2, 1.2)),
    st.builds(lambda on, off: {"sessions": {"on": on, "off": off}}, st.floats(0.5, 9), st.floats(0.5, 9)),
    st.builds(lambda rank: {"clients": f"largest {rank}", "rounds": [1, 3]}, st.integers(0, CLIENTS + 2)),
    st.sampled_from([{"scenario": name} for name in ("temporary", "permanent", "sequential", "two-groups", "pilot")]),
    st.builds(lambda c, s: {"classes": [c], "share": s, "rounds": [2, 5]}, st.integers(-1, 3), st.floats(-0.1, 1.1)),
)
ENTRY = st.one_of(st.builds(lambda t: {"clients": sorted(t[0]), "rounds": [t[1], t[2]]}, INTERVAL), OTHERS)


@settings(max_examples=200, deadline=None)
@given(entries=st.lists(ENTRY, max_size=3), participation=st.sampled_from([0.2, 0.6, 1.0]))
def test_any_absence_is_refused_or_gives_a_consistent_plan(entries: list[dict], participation: float) -> None:
    """Overlapping, touching, empty and reversed intervals, ranks beyond the clients, unknown clients and classes."""
    raw = {"absence": entries, "rounds": ROUNDS, "partition": {"name": "iid", "clients": CLIENTS}}
    counts = np.arange(CLIENTS * 3).reshape(CLIENTS, 3)
    sizes = counts.sum(1).tolist()
    try:
        experiment = recipe.validate(raw, "own")
        facts = RunFacts(CLIENTS, ROUNDS, 0, lambda: sizes, lambda: counts)
        absences = [resolve(entry, facts) for entry in experiment.absence]
    except UserError:  # with a message that the tests above read
        return
    sampling = Sampling(0, CLIENTS, participation, tuple(each for several in absences for each in several))
    everyone = set(range(CLIENTS))
    for round in range(1, ROUNDS + 1):
        absent, sampled = sampling.absent(round), sampling.sampled(round)
        assert absent == sorted(set(absent))
        assert set(absent) <= everyone
        assert set(sampled) <= everyone - set(absent)
        assert len(sampled) == min(sampling.clients_per_round, CLIENTS - len(absent))
        inside = {
            k for a in chain_of(absences) if isinstance(a, Absence) and a.first <= round < a.end for k in a.clients
        }
        assert inside <= set(absent)


def chain_of(absences: list) -> list:
    return [each for several in absences for each in several]
