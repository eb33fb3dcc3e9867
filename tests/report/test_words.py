"""The finding, sentence by sentence."""

from unskew.report.cost_notes import costs
from unskew.report.group_runs import settings_of
from unskew.results.finding import finding

from .made import made

CLEAR = {"fedavg": {0: 50.0, 1: 51.0, 2: 50.5}, "moon": {0: 60.0, 1: 61.2, 2: 60.4}}
LEVEL = {
    "fedavg": {0: 50.0, 1: 55.0, 2: 52.0},
    "moon": {0: 53.0, 1: 52.0, 2: 54.0},
    "scaffold": {0: 10.0, 1: 11.0, 2: 10.5},
}


def test_a_clear_leader_is_named_with_margin_and_interval():
    """Differences 10.0, 10.2, 9.9: mean 10.03, std 0.153, half width 4.303 x 0.153 / sqrt 3 = 0.38."""
    found = finding(CLEAR, "mean_last10")
    assert found.headline == "moon is clearly ahead, by 10.0 points."
    assert "moon reaches 60.5 % (mean of the last ten rounds)" in found.detail
    assert "its paired lead over fedavg is +10.0 points, interval +9.7 to +10.4 over 3 seeds" in found.detail
    assert found.detail.endswith("(95 % interval).")


def test_the_narrowest_of_several_clear_leads_is_told():
    """Over scaffold 20, 17.2, 23.4: mean 20.2, std 3.1, t at 97.5 % 6.205, half width 11.1; larger and less sure."""
    shaky = {0: 40.0, 1: 44.0, 2: 37.0}
    found = finding(CLEAR | {"scaffold": shaky}, "final")
    assert found.headline == "moon is clearly ahead, by 10.0 points."
    assert "over scaffold it is at least +9.1 " in found.detail
    assert "(95 % shared over 2 comparisons)" in found.detail


def test_overlap_means_no_clear_winner():
    found = finding(LEVEL, "best")
    assert found.headline == "No clear winner: moon has the highest mean, but fedavg may be as good."
    assert "It is clearly ahead of scaffold only." in found.detail
    assert "over 3 seeds (95 % shared over 2 comparisons)" in found.detail
    assert "best round" in found.detail
    assert found.detail.endswith("until then fedavg, the simplest, is not ruled out.")


def test_one_seed_cannot_tell():
    found = finding({"fedavg": {0: 50.0}, "moon": {0: 60.0}}, "final")
    assert found.headline == "One seed cannot tell: moon is highest, 10.0 points above fedavg."
    assert "luck" in found.detail
    assert "seed=1" in found.detail
    assert "clear" not in found.headline


def test_an_interval_wider_than_the_scale_is_said_to_be():
    found = finding({"a": {0: 10.0, 1: 60.0}, "b": {0: 40.0, 1: 20.0}}, "final")
    assert "wider than the scale over 2 seeds" in found.detail


def test_one_method_is_compared_with_nothing():
    found = finding({"fedavg": {0: 50.0, 1: 52.0}}, "final")
    assert found.headline == "fedavg reaches 51.0 %."
    assert "no other method" in found.detail


def test_costs_are_multiples_of_the_reference():
    runs = [made("fedavg", 0, [1, 2]), made("moon", 0, [1, 2], seconds=3.0), made("scaffold", 0, [1, 2], up=2000)]
    (setting,) = settings_of(runs)
    assert costs(setting) == ("Against fedavg, moon costs 3.0× the time of a round; scaffold costs 2.0× the bytes.")


def test_a_small_difference_in_cost_is_not_worth_a_word():
    runs = [made("fedavg", 0, [1, 2]), made("moon", 0, [1, 2], seconds=1.1)]
    assert costs(settings_of(runs)[0]) == "All methods cost about the same."


def test_times_that_shake_between_seeds_of_one_method_are_not_compared():
    """FedAvg took 1 s a round with one seed and 3 s with the other: no ratio to it means anything."""
    runs = [made("fedavg", 0, [1, 2]), made("fedavg", 1, [1, 2], seconds=3.0)]
    runs += [made("moon", 0, [1, 2], seconds=8.0, up=2000), made("moon", 1, [1, 2], seconds=8.0, up=2000)]
    found = costs(settings_of(runs)[0])
    assert found.startswith("Against fedavg, moon costs 2.0× the bytes. Times are not compared")
    assert "up to 3.0× as long" in found


def test_times_of_two_machines_are_not_compared():
    other = {"device": "another box", "engine": "loop", "workers": 1}
    runs = [made("fedavg", 0, [1, 2]), made("moon", 0, [1, 2], seconds=9.0, environment=other)]
    found = costs(settings_of(runs)[0])
    assert "9.0×" not in found
    assert "different machines" in found


def test_one_common_seed_gives_the_margin_of_that_seed() -> None:
    """With seed 0 alone a is far ahead; on the seed that both have it is behind."""
    found = finding({"a": {0: 80.0, 1: 20.0}, "b": {1: 30.0}}, "best")
    assert found.headline == "One seed cannot tell: b is highest, 10.0 points above a."


def test_no_common_seed_says_nothing() -> None:
    assert "no seed in common" in finding({"a": {0: 80.0}, "b": {1: 30.0}}, "best").headline
