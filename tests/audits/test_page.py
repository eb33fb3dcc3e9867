"""The audit page: its numbers, its texts, and that it is self-contained."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import unskew as us
from unskew.audits.leak import KindVerdict, Leak, Pictures
from unskew.audits.page.audit_page import write
from unskew.audits.page.headline import headline
from unskew.audits.page.image_grids import MAX_COLUMNS, grids
from unskew.audits.page.label_placement import Disc, LabelBox, place_labels
from unskew.audits.page.leak_table import tables
from unskew.audits.page.page_input import PageInput, RunUtility
from unskew.audits.page.summarise_leaks import best_tries, mean_by_attack, recovered_images, strongest, utilities

from .pages import IMAGES, example_page


def _leak(value: float, image: int = 0, restart: int = 0, **more: object) -> Leak:
    row = Leak("fedavg", "none", "ig", "digits", image, restart, "psnr", "unit, range 1", value, 0)
    return replace(row, **more)  # type: ignore[arg-type]


def _page(tmp_path: Path, page: PageInput) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return write(page, tmp_path / "audit.html").read_text(encoding="utf-8")


def test_the_best_try_on_an_image_counts_and_then_the_mean_over_images() -> None:
    leaks = [_leak(10, 0, 0), _leak(30, 0, 1), _leak(20, 1, 0), _leak(5, 1, 1)]
    assert mean_by_attack(best_tries(leaks))[["value", "images"]].to_numpy().tolist() == [[25.0, 2]]
    errors = [replace(leak, metric="mse", space="unit") for leak in leaks]
    assert mean_by_attack(best_tries(errors))["value"].tolist() == [7.5]  # the smaller error leaks more


def test_values_without_an_image_are_averaged_over_messages_and_matching_losses_are_ignored() -> None:
    named = [_leak(v, -1, -1, metric="label accuracy", space="percent") for v in (100, 50)]
    means = mean_by_attack(best_tries([*named, _leak(0.1, -1, 0, metric="matching loss", space="round 1")]))
    assert means[["metric", "value", "images"]].to_numpy().tolist() == [["label accuracy", 75.0, 0]]


def test_a_diverged_try_is_ignored_and_its_image_still_counts(tmp_path: Path) -> None:
    leaks = (_leak(math.nan), _leak(25.0, restart=1), _leak(math.inf, image=1), _leak(math.nan, method="moon"))
    recovered = recovered_images(best_tries(leaks)).set_index("label")
    assert recovered.loc["fedavg", ["recovered", "images", "top"]].tolist() == [1, 2, 25.0]
    assert recovered.loc["moon", ["recovered", "images"]].tolist() == [0, 1]
    runs = tuple(RunUtility(name, "", "digits", 0, 90.0, 1e6) for name in ("fedavg", "moon"))
    text = _page(tmp_path, PageInput("Diverged", runs, leaks=leaks))
    assert "nan" not in re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    assert "Not shown because not attacked" in text
    assert _page(tmp_path, PageInput("Diverged", runs, leaks=leaks[-1:])).count("<svg ") == 0


def test_an_image_is_recovered_from_twenty_decibels_in_pixels_by_any_attack() -> None:
    leaks = [_leak(19.9), _leak(20.0, attack="dlg"), _leak(3.0, image=1), _leak(50.0, image=1, space="normalised")]
    recovered = recovered_images(best_tries(leaks)).iloc[0]
    assert (recovered["recovered"], recovered["images"], recovered["attack"], recovered["top"]) == (1, 2, "dlg", 20.0)


def test_the_plot_shows_the_strongest_attack_for_rising_and_falling_metrics() -> None:
    leaks = [_leak(10), _leak(12, attack="dlg"), _leak(0.3, metric="mse"), _leak(0.1, metric="mse", attack="dlg")]
    means = mean_by_attack(best_tries(leaks))
    assert strongest(means, "psnr")["attack"].tolist() == ["dlg"]
    assert strongest(means, "mse")["attack"].tolist() == ["dlg"]


def test_a_metric_in_two_spaces_has_two_columns_and_a_run_without_attack_a_row() -> None:
    leaks = [_leak(10), _leak(4, space="normalised, range 1"), _leak(0.5, metric="lpips", space="alex")]
    runs = [RunUtility("fedavg", "none", "digits", s, 90.0 + s, 2e6) for s in (0, 2)] + [
        RunUtility("moon", "", "digits", 0, 80.0, 1e6)
    ]
    (table,) = tables(mean_by_attack(best_tries(leaks)), utilities(runs))
    assert table.columns[:2] == ("accuracy, %", "bytes sent")
    assert table.columns[2:] == ("PSNR, dB (unit, range 1)", "PSNR, dB (normalised, range 1)", "LPIPS (alex)")
    assert [cell.text for cell in table.rows[0].cells] == ["91.0", "2 MB", "10.0", "4.0", "0.500"]
    assert (table.rows[1].label, table.rows[1].cells[2].text, table.rows[1].cells[0].text) == ("moon", "–", "80.0")


def test_the_largest_leak_of_a_column_is_bold_for_rising_and_falling_metrics() -> None:
    leaks = [_leak(10), _leak(12, attack="dlg"), _leak(0.3, metric="mse"), _leak(0.1, metric="mse", attack="dlg")]
    (table,) = tables(
        mean_by_attack(best_tries(leaks)), utilities([RunUtility("fedavg", "none", "digits", 0, 90.0, 2e6)])
    )
    assert [[cell.best for cell in row.cells[2:]] for row in table.rows] == [[False, False], [True, True]]


def test_an_unknown_metric_is_refused_with_a_suggestion() -> None:
    with pytest.raises(us.UserError, match="did you mean psnr"):
        best_tries([_leak(1, metric="psnrr")])


def test_the_headline_counts_images_by_run() -> None:
    page = example_page()
    text = headline(best_tries(page.leaks), page.verdicts).headline
    assert text.startswith(f"All {IMAGES} images were recovered from what fedavg sent; ")
    assert f"none of {IMAGES} from fedavg + noise 0.01." in text


def test_the_headline_groups_runs_with_equal_leaks_and_keeps_the_largest_and_smallest() -> None:
    values = {"a": 6, "b": 6, "c": 5, "d": 4, "e": 3, "f": 2, "g": 0}
    leaks = [_leak(30.0 if i < n else 9.0, image=i, method=name) for name, n in values.items() for i in range(6)]
    text = headline(best_tries(leaks), ()).headline
    expected = "All 6 images were recovered from what a and b sent; 5 of 6 from c; 4 of 6 from d; …; none of 6 from g."
    assert text == expected
    single = headline(best_tries([_leak(9.0)]), ()).headline
    assert single == "None of 1 image was recovered from what fedavg sent."


def test_data_in_clear_is_in_the_headline_beside_the_images() -> None:
    clear = (KindVerdict("labels", "leaked", "", "a"), KindVerdict("counts", "leaked", "", "a"))
    text = headline(best_tries([_leak(9.0, method="a")]), clear).headline
    assert text == "None of 1 image was recovered from what a sent; labels left the clients of a in clear."


def test_identified_contexts_are_in_the_headline() -> None:
    context = [
        _leak(v, image=-1, metric="context accuracy", space="600 items", method=m)
        for m, v in (("a", 95.0), ("b", 80.0))
    ]
    text = headline(best_tries([_leak(9.0, method="a"), *context]), ()).headline
    first = "None of 1 image was recovered from what a sent"
    assert text == f"{first}; a square stamped on images can be told apart in what a sent."


def test_labels_overlap_neither_each_other_nor_a_disc() -> None:
    sheet = LabelBox(0, 0, 700, 340)
    discs = [Disc(x, y, 15, 110, 29) for x, y in ((100, 200), (300, 190), (310, 230), (600, 200), (600, 204))]
    boxes = place_labels(discs, sheet)
    for i, box in enumerate(boxes):
        assert box.overlap(sheet) == pytest.approx(box.area)
        assert all(box.overlap(other) == 0 for other in boxes[:i])
        assert all(box.overlap(disc.box) == 0 for disc in discs)


def test_without_images_the_headline_lists_the_verdicts() -> None:
    verdicts = (KindVerdict("weights", "resisted", ""), KindVerdict("control", "unknown", ""))
    text = headline(best_tries([]), verdicts)
    assert text.headline == "Weights: not recovered, at this budget; control: not attacked."
    assert "proves nothing" in text.detail


def test_pictures_of_the_same_images_share_a_grid_sorted_from_best_to_worst() -> None:
    (grid,) = grids(example_page().pictures)
    assert len(grid.heads) == MAX_COLUMNS
    assert [line.attack for line in grid.lines] == ["dlg", "ig", "ig", "ig"]
    strongest_first = [float(cell.text.split()[0]) for cell in grid.lines[1].cells]
    assert strongest_first == sorted(strongest_first, reverse=True)
    assert all(cell.recognisable == (float(cell.text.split()[0]) >= 20) for line in grid.lines for cell in line.cells)
    assert f"{MAX_COLUMNS} of {IMAGES}" in grid.note


def test_different_images_have_separate_grids_and_keep_their_colours() -> None:
    red = torch.zeros(1, 3, 4, 4)
    red[:, 0] = 1
    pair = [Pictures("ig", (i,), red, red * i, dataset="made") for i in (0, 1)]
    first, second = grids(pair)
    assert first.lines[0].cells[0].picture != second.lines[0].cells[0].picture
    assert second.lines[0].cells[0].picture == second.true[0].picture
    assert second.lines[0].cells[0].text == "120.0 dB"


def test_the_page_is_self_contained_and_complete(tmp_path: Path) -> None:
    text = _page(tmp_path, example_page())
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert text.count("<img ") == MAX_COLUMNS * 5
    assert 'gid="' not in text
    assert text.count("<svg ") == 4  # two figures, narrow and wide
    for words in ("not attacked", "not recovered, at this budget", "lpips was skipped", "10.4 MB"):
        assert words in text
    assert "†" in text  # 700 non-members are too few to resolve 0.1 %


def test_names_are_escaped(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    runs, verdicts = (RunUtility(bad, "", bad, 0, 50.0, 1.0),), (KindVerdict(bad, "unknown", bad, bad),)
    leaks = (_leak(9, method=bad, dataset=bad),)
    pictures = (Pictures(bad, (0,), torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8), bad),)
    text = _page(tmp_path, PageInput(bad, runs, verdicts, leaks, pictures))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_one_run_without_any_attack_has_a_page(tmp_path: Path) -> None:
    runs = (RunUtility("fedavg", "none", "digits", 0, 93.0, 1e6),)
    text = _page(tmp_path, PageInput("One", runs, (KindVerdict("weights", "unknown", "Nothing was recorded."),)))
    assert "Weights: not attacked." in text
    assert "<svg" not in text


def test_a_single_run_and_equal_runs_can_be_plotted(tmp_path: Path) -> None:
    runs = tuple(RunUtility("fedavg", d, "digits", 0, 93.0, 0.0) for d in ("none", "noise"))
    for count in (1, 2):
        leaks = tuple(_leak(20.0, defence=run.defence) for run in runs[:count])
        assert _page(tmp_path, PageInput("One", runs[:count], leaks=leaks)).count("<svg ") == 2


def test_without_images_the_plot_shows_membership_auc(tmp_path: Path) -> None:
    text = _page(tmp_path, replace(example_page(), leaks=(), pictures=()))
    assert text.count("<svg ") == 4
    assert "Accuracy against membership AUC" in text


def test_utility_of_a_run_adds_both_directions(tmp_path: Path) -> None:
    run = us.run(
        us.Experiment(method="fedavg", rounds=1, partition={"name": "iid", "clients": 2}), out=tmp_path / "run"
    )
    loaded = us.load(tmp_path / "run")
    utility = RunUtility.of(loaded, "noise")
    assert utility.bytes == run.summary.bytes_up + run.summary.bytes_down > 0
    assert (utility.method, utility.defence, utility.dataset) == ("fedavg", "noise", "digits")
