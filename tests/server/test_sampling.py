"""The clients of a round depend only on seed and round."""

import numpy as np
import pytest

from unskew.server.absence import Absence
from unskew.server.sampling import Sampling

SAMPLING = Sampling(seed=5, clients=20, participation=0.3)


@pytest.mark.parametrize(
    ("clients", "fraction", "size"), [(100, 0.1, 10), (10, 0.05, 1), (7, 0.5, 3), (4, 1.0, 4), (1, 0.5, 1)]
)
def test_number_of_sampled_clients(clients: int, fraction: float, size: int) -> None:
    """max(int(fraction * clients), 1)."""
    for round in range(1, 20):
        sampled = Sampling(0, clients, fraction).sampled(round)
        assert len(sampled) == size
        assert sampled == sorted(set(sampled))
        assert set(sampled) <= set(range(clients))


def test_samples_change_with_round_and_seed() -> None:
    rounds = [tuple(SAMPLING.sampled(t)) for t in range(1, 11)]
    assert len(set(rounds)) > 5
    assert rounds == [tuple(SAMPLING.sampled(t)) for t in range(1, 11)]
    assert rounds != [tuple(Sampling(6, 20, 0.3).sampled(t)) for t in range(1, 11)]


def test_every_client_is_sampled_equally_often() -> None:
    """6 of 20 in 2000 rounds: each client about 600 times, standard deviation 20.5; allow five."""
    counts = np.bincount(np.concatenate([SAMPLING.sampled(t) for t in range(1, 2001)]), minlength=20)
    assert np.abs(counts - 600).max() < 5 * 20.5


def test_absent_clients_are_never_sampled() -> None:
    """Clients 0..9 absent in rounds 2..4: others are sampled instead, and they are back in round 5."""
    sampling = Sampling(5, 20, 0.3, (Absence(tuple(range(10)), 2, 5),))
    for round in (2, 3, 4):
        assert sampling.absent(round) == list(range(10))
        assert len(sampling.sampled(round)) == 6
        assert not set(sampling.sampled(round)) & set(range(10))
    for round in (1, 5):
        assert sampling.absent(round) == []
        assert sampling.sampled(round) == SAMPLING.sampled(round)


def test_absence_of_a_client_keeps_the_others_sampled() -> None:
    """Sampled clients that are present stay sampled when another client is absent."""
    for round in range(1, 30):
        before = SAMPLING.sampled(round)
        after = Sampling(5, 20, 0.3, (Absence((before[0],), 1, 99),)).sampled(round)
        assert set(before[1:]) < set(after)
        assert before[0] not in after


def test_all_present_clients_are_sampled_if_they_are_too_few() -> None:
    sampling = Sampling(0, 4, 1.0, (Absence((0, 2), 1, 3), Absence((2, 3), 2, 9)))
    assert sampling.sampled(1) == [1, 3]
    assert sampling.absent(2) == [0, 2, 3]
    assert sampling.sampled(2) == [1]
    assert Sampling(0, 2, 1.0, (Absence((0, 1), 1, 2),)).sampled(1) == []


@pytest.mark.parametrize("clients", [7, 100])
def test_released_sampling_is_that_of_the_papers_code(clients: int) -> None:
    """Both repositories call np.random.seed(round index from 0) and then choice without replacement."""
    sampling = Sampling(1, clients, 0.1, released=True)
    m = max(int(0.1 * clients), 1)
    for round in (1, 2, 50, 200):
        state = np.random.get_state()
        np.random.seed(round - 1)
        expected = np.random.choice(clients, m, replace=False)
        np.random.set_state(state)
        assert set(sampling.sampled(round)) == set(expected.tolist())
        assert sampling.sampled(round) == Sampling(2, clients, 0.1, released=True).sampled(round)


def test_released_sampling_does_not_change_the_global_numpy_state() -> None:
    np.random.seed(3)
    expected = np.random.rand()
    np.random.seed(3)
    Sampling(1, 10, 0.5, released=True).sampled(4)
    assert np.random.rand() == expected
