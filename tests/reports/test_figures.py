"""Panels, axes and series of every figure."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from unskew.reports.figures import heat_maps, interval_plots, round_curves, stacked_bars
from unskew.reports.figures.figure_layout import INK, MUTED, NARROW, SERIES, WIDE, line_styles, spread_apart

METHODS = ["fedavg", "moon"]
STYLES = line_styles(METHODS)
CURVES = pd.DataFrame(
    [(m, s, t, 10.0 * t + s + 5 * i) for i, m in enumerate(METHODS) for s in (0, 2) for t in (1, 2, 3)],
    columns=["method", "seed", "round", "value"],
)


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def by_name(figure):
    return {line.get_gid(): line for line in figure.axes[0].lines if line.get_gid()}


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_accuracy_curves_are_means_with_the_range_of_the_seeds(width):
    figure = round_curves.accuracy_curves(CURVES, STYLES, width)
    (axes,) = figure.axes
    drawn = by_name(figure)
    assert list(drawn) == ["line fedavg", "line moon"]
    assert drawn["line moon"].get_ydata().tolist() == [16.0, 26.0, 36.0]  # 10 t + 5 + mean of 0 and 2
    assert drawn["line fedavg"].get_color() == MUTED
    assert len(axes.collections) == 2
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (10.0, 32.0)
    assert {"fedavg", "moon", "test accuracy, %"} <= set(texts(figure))
    assert axes.get_xlabel() == "round"
    assert figure.get_figwidth() * 72 == pytest.approx(width)


def test_one_seed_has_no_band():
    figure = round_curves.accuracy_curves(CURVES[CURVES["seed"] == 0], STYLES)
    assert not figure.axes[0].collections


def test_a_loss_figure_shows_one_part():
    frame = pd.DataFrame(
        [("fedavg", "ce", 1, 2.0), ("fedavg", "ce", 2, 1.0), ("moon", "ce", 1, 3.0), ("moon", "moon", 1, 0.5)],
        columns=["method", "part", "round", "value"],
    )
    assert list(by_name(round_curves.loss_curves(frame, "ce", STYLES))) == ["line fedavg", "line moon"]
    figure = round_curves.loss_curves(frame, "moon", STYLES)
    assert list(by_name(figure)) == ["line moon"]
    assert "loss term moon" in texts(figure)


def test_clients_left_out_add_up():
    frame = pd.DataFrame({"method": "moon", "seed": [0, 1, 0], "round": [2, 2, 5], "value": [1.0, 1.0, 4.0]})
    drawn = by_name(round_curves.dropped_curves(frame, STYLES))["line moon"]
    assert drawn.get_ydata().tolist() == [1.0, 3.0]


def test_bytes_are_stacked_by_kind_with_one_bar_for_each_direction():
    frame = pd.DataFrame(
        [
            ("fedavg", "up", "weights", 10.0),
            ("fedavg", "down", "weights", 20.0),
            ("moon", "up", "weights", 10.0),
            ("moon", "up", "control", 5.0),
            ("moon", "down", "weights", 20.0),
        ],
        columns=["method", "direction", "kind", "bytes"],
    )
    (axes,) = stacked_bars.traffic_bars(frame).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fedavg ↑", "fedavg ↓", "moon ↑", "moon ↓"]
    weights, control = axes.containers
    assert [bar.get_width() for bar in weights] == [10.0, 20.0, 10.0, 20.0]
    assert [(bar.get_x(), bar.get_width()) for bar in control] == [(10.0, 0.0), (20.0, 0.0), (10.0, 5.0), (20.0, 0.0)]
    assert {"10 B", "20 B", "15 B"} <= {text.get_text() for text in axes.texts}


def test_time_is_training_and_evaluation():
    rows = [("fedavg", "train", 2.0), ("fedavg", "evaluate", 1.0), ("moon", "train", 4.0), ("moon", "evaluate", 1.0)]
    (axes,) = stacked_bars.time_bars(pd.DataFrame(rows, columns=["method", "what", "seconds"])).axes
    train, evaluate = axes.containers
    assert [bar.get_width() for bar in train] == [2.0, 4.0]
    assert [bar.get_x() for bar in evaluate] == [2.0, 4.0]
    assert {"3 s", "5 s"} <= {text.get_text() for text in axes.texts}


def test_the_forest_has_an_interval_per_method_and_a_line_at_zero():
    rows = [{"method": "moon", "mean": 2.0, "low": -1.0, "high": 5.0}]
    rows += [{"method": "scaffold", "mean": -3.0, "low": -np.inf, "high": np.inf}]
    figure = interval_plots.forest(pd.DataFrame(rows), "fedavg", line_styles(["fedavg", "moon", "scaffold"]))
    drawn = by_name(figure)
    assert set(drawn) == {"interval moon", "mean moon", "mean scaffold"}  # one seed: a dot without an interval
    assert drawn["interval moon"].get_xdata().tolist() == [-1.0, 5.0]
    zero = next(line for line in figure.axes[0].lines if not str(line.get_gid() or "_").startswith(("i", "m")))
    assert (zero.get_color(), list(zero.get_xdata())) == (INK, [0, 0])
    low, high = figure.axes[0].get_xlim()
    assert low < -3
    assert high > 5
    assert {"+2.0", "−3.0"} <= set(texts(figure))


def test_a_wide_interval_does_not_stretch_the_axis_past_the_scale():
    frame = pd.DataFrame([{"method": "moon", "mean": 0.0, "low": -900.0, "high": 900.0}])
    low, high = interval_plots.forest(frame, "fedavg", STYLES).axes[0].get_xlim()
    assert low >= -115
    assert high <= 115


def test_own_classes_show_median_and_percentiles():
    frame = pd.DataFrame({"method": "fedavg", "client": range(101), "value": np.arange(101.0)})
    figure = interval_plots.client_boxes(frame, STYLES)
    drawn = by_name(figure)
    assert drawn["median fedavg"].get_xdata().tolist() == [50.0, 50.0]
    assert drawn["range fedavg"].get_xdata().tolist() == [5.0, 95.0]
    (box,) = figure.axes[0].patches
    assert (box.get_x(), box.get_width()) == (25.0, 50.0)
    assert figure.axes[0].get_xlim() == (0.0, 100.0)


def test_the_histogram_counts_every_client():
    (axes,) = interval_plots.sizes_histogram(pd.Series([5, 5, 6, 90])).axes
    assert sum(bar.get_height() for bar in axes.patches) == 4


def cells(figure):
    return np.asarray(figure.axes[0].images[0].get_array())


def test_holdings_are_shares_of_a_client():
    table = pd.DataFrame([[4, 0], [1, 3]])
    figure = heat_maps.holdings_map(table, ["cat", "dog"])
    assert cells(figure)[..., 3].tolist() == [[255, 64], [0, 191]]  # classes down, clients across
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["cat", "dog"]
    assert figure.axes[0].get_xlabel() == "client"


def test_many_clients_are_sorted_and_merged():
    table = pd.DataFrame(np.eye(10, dtype=int)[np.arange(500) % 10] * 7)
    figure = heat_maps.holdings_map(table, [str(c) for c in range(10)])
    pixels = cells(figure)
    assert pixels.shape[1] <= heat_maps.MAX_COLUMNS
    assert "sorted" in figure.axes[0].get_xlabel()
    assert (np.diff(pixels[..., 3].argmax(axis=0)) >= 0).all()


def test_class_rounds_are_a_pixel_per_cell_and_gaps_keep_the_last_score():
    table = pd.DataFrame([[0.0, 100.0], [50.0, np.nan]], index=[1, 3])
    figure = heat_maps.class_rounds(table, ["cat", "dog"], "moon: accuracy by class", 100)
    assert cells(figure)[..., 3].tolist() == [[0, 0, 128], [255, 255, 255]]
    assert "moon: accuracy by class" in texts(figure)


def test_class_methods_print_the_number_in_the_cell():
    table = pd.DataFrame([[12.4, np.nan], [99.6, 50.0]], index=METHODS)
    figure = heat_maps.class_methods(table, ["cat", "dog"])
    assert {"12", "100", "50"} <= set(texts(figure))
    assert "nan" not in texts(figure)
    assert cells(figure)[0, 1, 3] == 0


def test_with_a_hundred_classes_the_axis_shows_numbers():
    table = pd.DataFrame(np.full((2, 100), 50.0), index=METHODS)
    assert len(texts(heat_maps.class_methods(table, [f"class {c}" for c in range(100)]))) == 1


def test_the_baseline_is_grey_and_dashes_change_when_the_palette_is_exhausted():
    styles = line_styles([f"m{i}" for i in range(12)])
    assert styles["m0"] == (MUTED, "-")
    assert styles["m1"][0] == styles["m9"][0] == SERIES[0]
    assert styles["m1"][1] != styles["m9"][1]
    assert len(set(map(str, styles.values()))) == 12


def test_labels_stay_inside_and_apart():
    positions = spread_apart([9.9, 9.8, 9.7, 0.0], 1.0, 0.0, 10.0)
    assert max(positions) <= 10.0 + 1e-6
    assert np.diff(sorted(positions)).min() >= 1.0 - 1e-6


def test_drawing_does_not_change_matplotlibs_settings():
    before = dict(mpl.rcParams)
    round_curves.accuracy_curves(CURVES, STYLES)
    assert dict(mpl.rcParams) == before
