"""The finding and the cost sentence, word by word."""

from unskew.reports.cost_notes import cost_sentence
from unskew.reports.group_runs import group_by_setting
from unskew.results.finding import finding

from .synthetic_runs import make_run

CLEAR = {"fedavg": {0: 50.0, 1: 51.0, 2: 50.5}, "moon": {0: 60.0, 1: 61.2, 2: 60.4}}
LEVEL = {
    "fedavg": {0: 50.0, 1: 55.0, 2: 52.0},
    "moon": {0: 53.0, 1: 52.0, 2: 54.0},
    "scaffold": {0: 10.0, 1: 11.0, 2: 10.5},
}


def test_a_clear_leader_is_named_with_margin_and_interval():
    """Differences 10.0, 10.2, 9.9: mean 10.03, std 0.153, half width 4.303 x 0.153 / sqrt 3 = 0.38."""
    result = finding(CLEAR, "mean_last10")
    assert result.headline == "moon is clearly ahead, by 10.0 points."
    assert "moon reaches 60.5 % (mean of the last ten rounds)" in result.detail
    assert "its paired lead over fedavg is +10.0 points, interval +9.7 to +10.4 over 3 seeds" in result.detail
    assert result.detail.endswith("(95 % interval).")


def test_the_narrowest_of_several_clear_leads_is_reported():
    """Over scaffold 20, 17.2, 23.4: mean 20.2, std 3.1, t at 1 - 0.05/6 7.65, half width 13.7: larger, less sure."""
    shaky = {0: 40.0, 1: 44.0, 2: 37.0}
    result = finding(CLEAR | {"scaffold": shaky}, "final")
    assert result.headline == "moon is clearly ahead, by 10.0 points."
    assert "over scaffold it is at least +6.5 " in result.detail
    assert "(95 %, Bonferroni-corrected for 3 pairs of methods)" in result.detail


def test_overlap_means_no_clear_winner():
    result = finding(LEVEL, "best")
    assert result.headline == "No clear winner: moon has the highest mean, but fedavg may be as good."
    assert "It is clearly ahead of scaffold only." in result.detail
    assert "over 3 seeds (95 %, Bonferroni-corrected for 3 pairs of methods)" in result.detail
    assert "best round" in result.detail
    assert result.detail.endswith("until then fedavg, the simplest, is not ruled out.")


def test_one_seed_is_not_enough():
    result = finding({"fedavg": {0: 50.0}, "moon": {0: 60.0}}, "final")
    assert result.headline == "One seed is not enough: moon is highest, 10.0 points above fedavg."
    assert "the margin may be chance" in result.detail
    assert "seed=1" in result.detail
    assert "clear" not in result.headline


def test_an_interval_wider_than_the_scale_is_described_as_such():
    result = finding({"a": {0: 10.0, 1: 60.0}, "b": {0: 40.0, 1: 20.0}}, "final")
    assert "wider than the scale over 2 seeds" in result.detail


def test_a_single_method_is_not_compared():
    result = finding({"fedavg": {0: 50.0, 1: 52.0}}, "final")
    assert result.headline == "fedavg reaches 51.0 %."
    assert "no other method" in result.detail


def test_costs_are_multiples_of_the_baseline():
    runs = [
        make_run("fedavg", 0, [1, 2]),
        make_run("moon", 0, [1, 2], seconds=3.0),
        make_run("scaffold", 0, [1, 2], up=2000),
    ]
    (setting,) = group_by_setting(runs)
    assert cost_sentence(setting) == (
        "Per round, compared with fedavg: moon needs 3.0× the time; scaffold needs 2.0× the bytes."
    )


def test_small_cost_differences_are_not_mentioned():
    runs = [make_run("fedavg", 0, [1, 2]), make_run("moon", 0, [1, 2], seconds=1.1)]
    assert cost_sentence(group_by_setting(runs)[0]) == "All methods cost about the same."


def test_times_that_vary_between_seeds_of_one_method_are_not_compared():
    """FedAvg took 1 s per round with one seed and 3 s with the other, so a ratio to it is meaningless."""
    runs = [make_run("fedavg", 0, [1, 2]), make_run("fedavg", 1, [1, 2], seconds=3.0)]
    runs += [make_run("moon", 0, [1, 2], seconds=8.0, up=2000), make_run("moon", 1, [1, 2], seconds=8.0, up=2000)]
    result = cost_sentence(group_by_setting(runs)[0])
    assert result.startswith("Per round, compared with fedavg: moon needs 2.0× the bytes. Times are not compared")
    assert "up to 3.0× as long" in result


def test_times_of_two_machines_are_not_compared():
    other = {"device": "another box", "engine": "loop", "workers": 1}
    runs = [make_run("fedavg", 0, [1, 2]), make_run("moon", 0, [1, 2], seconds=9.0, environment=other)]
    result = cost_sentence(group_by_setting(runs)[0])
    assert "9.0×" not in result
    assert "different machines" in result


def test_with_one_common_seed_the_margin_is_that_of_the_seed() -> None:
    """Method a is far ahead with seed 0 but behind with the only seed that both have."""
    result = finding({"a": {0: 80.0, 1: 20.0}, "b": {1: 30.0}}, "best")
    assert result.headline == "One seed is not enough: b is highest, 10.0 points above a."


def test_without_a_common_seed_nothing_is_compared() -> None:
    assert "no seed in common" in finding({"a": {0: 80.0}, "b": {1: 30.0}}, "best").headline


def test_equal_methods_are_called_equal() -> None:
    scores = {0: 50.0, 1: 61.2}
    result = finding({"fedavg": scores, "fedprox": dict(scores), "moon": dict(scores)}, "best")
    assert result.headline == "No difference: fedavg, fedprox and moon have the same accuracy with each of 2 seeds."
    assert "more seeds would not separate them" in result.detail
    assert "with the only common seed" in finding({"fedavg": {0: 50.0}, "moon": {0: 50.0}}, "best").headline
