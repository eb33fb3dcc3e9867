"""The page as a file: complete, self-contained, safe, small."""

import json
import re
import shutil
import warnings
from html.parser import HTMLParser
from pathlib import Path

import pytest

from unskew.base.errors import UserError
from unskew.reports.report_page import title_of, write
from unskew.reports.report_runs import load_runs
from unskew.reports.sections import DETAILS, RESULTS

from .synthetic_runs import make_run, rising_curve

MIB = 2**20


class Tags(HTMLParser):
    """Tags with their attributes, and ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def of(self, attribute: str) -> list[str]:
        return [str(attributes[attribute]) for _, attributes in self.tags if attribute in attributes]


@pytest.fixture(scope="module")
def text(page: Path) -> str:
    return page.read_text()


def test_sections_are_complete_and_in_order(text):
    """Results come before the details."""
    results, details = ([section.title for section in part] for part in (RESULTS, DETAILS))
    expected = [*results, "Experiment", *details, "Headers and settings"]
    assert results[0] == "Accuracy by round"
    assert re.findall(r"<h2>(.*?)</h2>", text) == expected
    assert re.findall(r'<a href="#[\w-]+">(.*?)</a>', text.partition("</nav>")[0]) == expected


def test_the_page_loads_nothing(text):
    assert "http://" not in text
    assert "https://" not in text
    tags = Tags(text)
    assert "script" not in {tag for tag, _ in tags.tags}
    addresses = tags.of("src") + tags.of("href") + tags.of("xlink:href")
    assert {address[:1] if address.startswith("#") else address[:5] for address in addresses} == {"#", "data:"}
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def test_names_of_users_are_escaped(text):
    assert "<script" not in text
    assert "&lt;script" in text
    assert "<title>Tea &amp; &lt;milk&gt;</title>" in text
    assert "rows&lt;1&gt;" in text
    assert "$x_$" in text


def test_a_class_named_in_a_caption_is_escaped_in_full(tmp_path):
    """Class 0 of the synthetic run has accuracy 0."""
    run = make_run("fedavg", 0, [1, 2], classes=["<script>alert(1)</script>", "b"])
    text = write([run], tmp_path / "page.html", "a").read_text()
    assert "At the end, class &lt;script&gt;alert(1)&lt;/script&gt; is weakest (0 %)" in text
    assert "<script" not in text


def test_ids_are_unique_and_every_reference_has_its_target(text):
    tags = Tags(text)
    ids = tags.of("id")
    assert len(ids) == len(set(ids))
    wanted = [ref[1:] for ref in tags.of("href") + tags.of("xlink:href") if ref.startswith("#")]
    wanted += re.findall(r"url\(#([^)]+)\)", text)
    assert set(wanted) <= set(ids)


def test_every_figure_has_a_label_and_a_caption(text):
    figures = [attributes for tag, attributes in Tags(text).tags if tag == "svg"]
    assert len(figures) > 15
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in figures)
    assert text.count("<figure") == text.count("<figcaption>")


def test_figures_use_the_pages_colours_and_real_text(text):
    assert text.count("<style") == 1  # a style sheet inside a figure would apply to the entire page
    body = text.split("</style>", 1)[1]
    assert "#0a0" not in body
    assert "var(--s0)" in body
    assert "font-family" not in body
    assert re.search(r"<text[^>]*>test accuracy, %</text>", body)


def test_facts_departures_and_settings_are_shown(text):
    assert "dirichlet" in text or "6 clients" in text
    assert "every client does all its local steps" in text  # FedProx's departure
    assert re.search(r"<h4>fedavg-1</h4><pre>seed: 1</pre>", text)  # only the difference, not all settings
    assert text.count("participation:") == 1


def test_ten_runs_of_two_hundred_rounds_stay_small(tmp_path):
    runs = [
        make_run(m, s, rising_curve(200, s), clients=100)
        for m in ("fedavg", "fedprox", "moon", "fednova", "fedcurv")
        for s in (0, 1)
    ]
    size = write(runs, tmp_path / "big.html", "big").stat().st_size
    assert size < 3 * MIB


def test_two_datasets_are_two_settings_side_by_side(tmp_path):
    runs = [make_run("fedavg", 0, [1, 2]), make_run("fedavg", 0, [1, 2], data="cifar10")]
    text = write(runs, tmp_path / "two.html", title_of(runs)).read_text()
    assert "<title>fedavg on digits, cifar10</title>" in text
    for name in ("data digits", "data cifar10"):
        assert text.count(f'<h3 class="setting">{name}</h3>') == len(RESULTS) + len(DETAILS) + 3
    assert text.count("fedavg reaches") == 2


def test_a_wrong_metric_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="did you mean best"):
        write([make_run("fedavg", 0, [1, 2])], tmp_path / "a.html", "a", metric="bset")


@pytest.mark.parametrize("metric", ["selected", "bset"])
def test_the_command_refuses_an_unknown_metric(metric, folder, unskew):
    result = unskew("report", folder, "--metric", metric)
    assert result.code == 2
    assert f"metric: found '{metric}'" in result.err
    assert "xpected one of best, final, mean_last10, clients_mean, worst_tenth" in result.err


def test_unreadable_runs_are_skipped_with_a_warning(folder, tmp_path, unskew):
    """One is unfinished, one has a broken table, one a broken manifest; a tracker keeps a config.yaml of its own."""
    grid = shutil.copytree(folder, tmp_path / "grid")
    cells = grid / "cells"
    manifest = cells / "fedavg-1" / "checkpoint" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"finished": None}))
    (cells / "fedprox-0" / "metrics.parquet").write_text("no table")
    (cells / "fedprox-1" / "checkpoint" / "manifest.json").write_text("{")
    tracker = cells / "fedavg-0" / "wandb" / "files"
    tracker.mkdir(parents=True)
    (tracker / "config.yaml").write_text("wandb_version: 1")
    result = unskew("report", grid, "--out", tmp_path / "page.html")
    assert result.code == 0, result.err
    lines = result.err.splitlines()
    assert [line.startswith("unskew: skipped: ") for line in lines] == [True] * 3
    assert [name in line for name, line in zip(("fedavg-1", "fedprox-0", "fedprox-1"), lines)] == [True] * 3
    assert "<title>fedavg on rows&lt;1&gt;</title>" in (tmp_path / "page.html").read_text()
    assert unskew("report", cells / "fedavg-1").code == 2
    shutil.rmtree(cells / "fedavg-0")
    result = unskew("report", grid)
    assert result.code == 2
    assert "expected the folder of a run" in result.err


def test_runs_below_a_folder_are_loaded(folder):
    names = [run.folder.name for run in load_runs(folder, warnings.warn)]
    assert names == ["fedavg-0", "fedavg-1", "fedprox-0", "fedprox-1"]
    cell = folder / "cells" / "fedavg-0"
    assert [run.folder for run in load_runs(cell, warnings.warn)] == [cell]


def test_the_command_writes_the_page(folder, tmp_path, unskew):
    result = unskew("report", folder / "cells" / "fedavg-0", "--out", tmp_path / "deep" / "page.html", "--title", "One")
    assert result.code == 0
    assert "<title>One</title>" in (tmp_path / "deep" / "page.html").read_text()
    assert str(tmp_path / "deep" / "page.html") in result.out


def test_the_command_refuses_a_folder_without_runs(tmp_path, unskew):
    result = unskew("report", tmp_path)
    assert result.code == 2
    assert "expected the folder of a run" in result.err
    assert "Traceback" not in result.err


def test_the_command_refuses_an_output_path_that_it_cannot_write(folder, tmp_path, unskew):
    result = unskew("report", folder / "cells" / "fedavg-0", "--out", tmp_path)
    assert result.code == 2
    assert "cannot be written" in result.err
    assert "choose another path" in result.err
