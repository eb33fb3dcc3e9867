"""The audit's page: what it counts, what it says, and that it stands alone."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import unskew as us
from unskew.audit.leak import KindVerdict, Leak, Pictures
from unskew.audit.page.audit_page import write
from unskew.audit.page.headline import found
from unskew.audit.page.image_grids import MOST, grids
from unskew.audit.page.label_placement import Disc, LabelBox, placed
from unskew.audit.page.leak_table import tables
from unskew.audit.page.page_input import PageInput, RunUtility
from unskew.audit.page.summarise_leaks import best_tries, by_attack, recognised, strongest, utilities

from .pages import IMAGES, made


def _leak(value: float, image: int = 0, restart: int = 0, **more: object) -> Leak:
    row = Leak("fedavg", "none", "ig", "digits", image, restart, "psnr", "unit, range 1", value, 0)
    return replace(row, **more)  # type: ignore[arg-type]


def _page(tmp_path: Path, page: PageInput) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return write(page, tmp_path / "audit.html").read_text(encoding="utf-8")


def test_the_best_try_on_an_image_counts_and_then_the_mean_over_images() -> None:
    leaks = [_leak(10, 0, 0), _leak(30, 0, 1), _leak(20, 1, 0), _leak(5, 1, 1)]
    assert by_attack(best_tries(leaks))[["value", "images"]].to_numpy().tolist() == [[25.0, 2]]
    errors = [replace(leak, metric="mse", space="unit") for leak in leaks]
    assert by_attack(best_tries(errors))["value"].tolist() == [7.5]  # the smaller error leaks more


def test_what_concerns_no_image_is_a_mean_over_messages_and_a_matching_loss_no_leak() -> None:
    named = [_leak(v, -1, -1, metric="label accuracy", space="percent") for v in (100, 50)]
    means = by_attack(best_tries([*named, _leak(0.1, -1, 0, metric="matching loss", space="round 1")]))
    assert means[["metric", "value", "images"]].to_numpy().tolist() == [["label accuracy", 75.0, 0]]


def test_a_try_that_diverged_is_no_try_and_an_image_without_any_still_counts(tmp_path: Path) -> None:
    leaks = (_leak(math.nan), _leak(25.0, restart=1), _leak(math.inf, image=1), _leak(math.nan, method="moon"))
    back = recognised(best_tries(leaks)).set_index("label")
    assert back.loc["fedavg", ["found", "images", "top"]].tolist() == [1, 2, 25.0]
    assert back.loc["moon", ["found", "images"]].tolist() == [0, 1]
    runs = tuple(RunUtility(name, "", "digits", 0, 90.0, 1e6) for name in ("fedavg", "moon"))
    text = _page(tmp_path, PageInput("Diverged", runs, leaks=leaks))
    assert "nan" not in re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    assert "Not shown, for want of an attack" in text
    assert _page(tmp_path, PageInput("Diverged", runs, leaks=leaks[-1:])).count("<svg ") == 0


def test_an_image_is_back_from_twenty_decibels_on_by_any_attack_in_pixels() -> None:
    leaks = [_leak(19.9), _leak(20.0, attack="dlg"), _leak(3.0, image=1), _leak(50.0, image=1, space="normalised")]
    back = recognised(best_tries(leaks)).iloc[0]
    assert (back["found"], back["images"], back["attack"], back["top"]) == (1, 2, "dlg", 20.0)


def test_the_plot_takes_the_strongest_attack_whichever_way_a_metric_runs() -> None:
    leaks = [_leak(10), _leak(12, attack="dlg"), _leak(0.3, metric="mse"), _leak(0.1, metric="mse", attack="dlg")]
    means = by_attack(best_tries(leaks))
    assert strongest(means, "psnr")["attack"].tolist() == ["dlg"]
    assert strongest(means, "mse")["attack"].tolist() == ["dlg"]


def test_a_metric_in_two_spaces_has_two_columns_and_a_run_without_attack_a_row() -> None:
    leaks = [_leak(10), _leak(4, space="normalised, range 1"), _leak(0.5, metric="lpips", space="alex")]
    runs = [RunUtility("fedavg", "none", "digits", s, 90.0 + s, 2e6) for s in (0, 2)] + [
        RunUtility("moon", "", "digits", 0, 80.0, 1e6)
    ]
    (table,) = tables(by_attack(best_tries(leaks)), utilities(runs))
    assert table.columns[:2] == ("accuracy, %", "bytes sent")
    assert table.columns[2:] == ("PSNR, dB (unit, range 1)", "PSNR, dB (normalised, range 1)", "LPIPS (alex)")
    assert [cell.text for cell in table.rows[0].cells] == ["91.0", "2 MB", "10.0", "4.0", "0.500"]
    assert (table.rows[1].label, table.rows[1].cells[2].text, table.rows[1].cells[0].text) == ("moon", "–", "80.0")


def test_the_largest_leak_of_a_column_is_marked_whichever_way_it_runs() -> None:
    leaks = [_leak(10), _leak(12, attack="dlg"), _leak(0.3, metric="mse"), _leak(0.1, metric="mse", attack="dlg")]
    (table,) = tables(by_attack(best_tries(leaks)), utilities([RunUtility("fedavg", "none", "digits", 0, 90.0, 2e6)]))
    assert [[cell.best for cell in row.cells[2:]] for row in table.rows] == [[False, False], [True, True]]


def test_a_metric_that_nobody_knows_is_refused() -> None:
    with pytest.raises(us.UserError, match="did you mean psnr"):
        best_tries([_leak(1, metric="psnrr")])


def test_the_headline_counts_images_by_run() -> None:
    page = made()
    headline = found(best_tries(page.leaks), page.verdicts).headline
    assert headline.startswith(f"All {IMAGES} images came back from what fedavg sent; ")
    assert f"none of {IMAGES} from fedavg + noise 0.01." in headline


def test_runs_that_gave_away_as_much_are_named_together_and_the_ends_are_never_left_out() -> None:
    values = {"a": 6, "b": 6, "c": 5, "d": 4, "e": 3, "f": 2, "g": 0}
    leaks = [_leak(30.0 if i < n else 9.0, image=i, method=name) for name, n in values.items() for i in range(6)]
    said = found(best_tries(leaks), ()).headline
    assert said == "All 6 images came back from what a and b sent; 5 of 6 from c; 4 of 6 from d; …; none of 6 from g."
    alone = found(best_tries([_leak(9.0)]), ()).headline
    assert alone == "None of 1 image came back from what fedavg sent."


def test_contexts_that_were_named_are_in_the_headline() -> None:
    context = [
        _leak(v, image=-1, metric="context accuracy", space="600 items", method=m)
        for m, v in (("a", 95.0), ("b", 80.0))
    ]
    said = found(best_tries([_leak(9.0, method="a"), *context]), ()).headline
    assert said == "None of 1 image came back from what a sent; where pictures were taken can be told from what a sent."


def test_names_beside_discs_hide_neither_one_another_nor_a_disc() -> None:
    sheet = LabelBox(0, 0, 700, 340)
    discs = [Disc(x, y, 15, 110, 29) for x, y in ((100, 200), (300, 190), (310, 230), (600, 200), (600, 204))]
    boxes = placed(discs, sheet)
    for i, box in enumerate(boxes):
        assert box.overlap(sheet) == pytest.approx(box.area)
        assert all(box.overlap(other) == 0 for other in boxes[:i])
        assert all(box.overlap(disc.box) == 0 for disc in discs)


def test_without_pictures_the_headline_is_the_verdicts() -> None:
    verdicts = (KindVerdict("weights", "resisted", ""), KindVerdict("control", "unknown", ""))
    said = found(best_tries([]), verdicts)
    assert said.headline == "Weights: attacked and resisted, at this budget; control: no attack known here."
    assert "proves nothing" in said.detail


def test_pictures_of_the_same_images_share_a_grid_from_the_closest_to_the_farthest() -> None:
    (grid,) = grids(made().pictures)
    assert len(grid.heads) == MOST
    assert [line.attack for line in grid.lines] == ["dlg", "ig", "ig", "ig"]
    strongest_first = [float(cell.text.split()[0]) for cell in grid.lines[1].cells]
    assert strongest_first == sorted(strongest_first, reverse=True)
    assert all(cell.back == (float(cell.text.split()[0]) >= 20) for line in grid.lines for cell in line.cells)
    assert f"{MOST} of {IMAGES}" in grid.note


def test_other_images_have_a_grid_of_their_own_and_colours_are_kept() -> None:
    red = torch.zeros(1, 3, 4, 4)
    red[:, 0] = 1
    pair = [Pictures("ig", (i,), red, red * i, dataset="made") for i in (0, 1)]
    first, second = grids(pair)
    assert first.lines[0].cells[0].picture != second.lines[0].cells[0].picture
    assert second.lines[0].cells[0].picture == second.true[0].picture
    assert second.lines[0].cells[0].text == "120.0 dB"


def test_the_page_needs_nothing_else_and_shows_everything(tmp_path: Path) -> None:
    text = _page(tmp_path, made())
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert text.count("<img ") == MOST * 5
    assert 'gid="' not in text
    assert text.count("<svg ") == 4  # two figures, narrow and wide
    for words in ("no attack known here", "attacked and resisted, at this budget", "lpips was skipped", "10.4 MB"):
        assert words in text
    assert "†" in text  # 700 non-members cannot tell 0.1 %


def test_names_are_shown_and_never_run(tmp_path: Path) -> None:
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
    assert "Weights: no attack known here." in text
    assert "<svg" not in text


def test_a_single_run_and_equal_runs_can_be_plotted(tmp_path: Path) -> None:
    runs = tuple(RunUtility("fedavg", d, "digits", 0, 93.0, 0.0) for d in ("none", "noise"))
    for count in (1, 2):
        leaks = tuple(_leak(20.0, defence=run.defence) for run in runs[:count])
        assert _page(tmp_path, PageInput("One", runs[:count], leaks=leaks)).count("<svg ") == 2


def test_without_pictures_the_plot_is_of_membership(tmp_path: Path) -> None:
    text = _page(tmp_path, replace(made(), leaks=(), pictures=()))
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
