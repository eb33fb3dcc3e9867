"""`unskew methods`: the table, the pages, and costs that are measured, not claimed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import unskew.describe as package
from runner.conftest import Command
from unskew.base.errors import UserError
from unskew.describe import describe_method, method_facts, method_markdown
from unskew.describe.method_cost import Net, measure

REPOSITORY = Path(__file__).parents[2]
STALE = "generated text is old: python benchmarks/pages.py"


def test_table_names_every_method(unskew: Command) -> None:
    said = unskew("methods")
    assert said.code == 0
    for name in describe_method.shipped():
        assert f" {name} " in said.out
    assert "Karimireddy et al. 2020" in said.out
    assert "control dc" in said.out


def test_table_as_json(unskew: Command) -> None:
    rows = json.loads(unskew("methods", "--json").out)
    assert [row["method"] for row in rows] == describe_method.shipped()
    by_name = {row["method"]: row for row in rows}
    assert by_name["scaffold"]["leaves the client beyond the model"] == "control dc"
    assert by_name["fedprox"]["leaves the client beyond the model"] == "nothing"
    assert "cifar10" in by_name["scaffold"]["status"]


def test_page_has_equations_settings_traffic_state_and_departures(unskew: Command) -> None:
    said = unskew("methods", "scaffold")
    assert said.code == 0
    out = said.out + " ".join(said.out.split())  # as printed, and with wrapped lines joined
    for words in (
        "    (2)  c_k+ = c_k - c + (w^t - w_k) / (eta a_k)    eta of this round",
        "ICML 2020",
        "scaffold/dc",
        "scaffold/c ",
        "1.00 models",
        "2.00 x up, 2.00 x down",
        "averaged by rows",
        "papers' numbers tested",
    ):
        assert words in out, words


def test_page_of_a_sum(unskew: Command) -> None:
    said = unskew("methods", "fedprox+avgm")
    for words in ("ce + prox + avgm", "prox.mu", "avgm.beta", "at least 0, below 1", "v <- beta v + d"):
        assert words in said.out, words
    assert "sum_j n_j" not in said.out, "the mean that momentum replaces"


def test_page_as_json(unskew: Command) -> None:
    found = json.loads(unskew("methods", "moon", "--json").out)
    assert found["parts"] == ["ce", "average", "moon"]
    assert [setting["name"] for setting in found["settings"]] == ["mu", "tau"]
    assert found["cost"]["cost"]["passes"] == 2
    assert list(found["cost"]["cost"]["client_state"]) == ["moon"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["methods", "scafold"], "did you mean scaffold?"),
        (["methods", "moon", "--model", "mobilnet_v2"], "did you mean mobilenet_v2?"),
        (["methods", "moon", "--shape", "3,a"], "3,32,32"),
        (["methods", "moon", "--model", "cnn", "--shape", "5"], "does not fit"),
    ],
)
def test_mistakes_are_told_in_one_line(words: list[str], told: str, unskew: Command) -> None:
    said = unskew(*words)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert "Traceback" not in said.err


NET = Net("mlp", (16,), 10)


@pytest.mark.parametrize(
    ("name", "up", "down", "passes"),
    [("fedavg", 1, 1, 0), ("fedprox", 1, 1, 0), ("scaffold", 2, 2, 0), ("fedcurv", 3, 3, 0.2), ("moon", 1, 1, 2)],
)
def test_cost_beside_fedavg(name: str, up: float, down: float, passes: float) -> None:
    """SCAFFOLD sends a variate the size of the model; FedCurv two; MOON looks at two frozen models a step; FedCurv's
    Fisher pass sees once what five epochs see five times."""
    found = measure(name, NET)
    assert (found.up, found.down) == (pytest.approx(up, abs=0.01), pytest.approx(down, abs=0.01))
    assert found.cost.passes == pytest.approx(passes)


def test_work_counts_frozen_passes_as_forward_only() -> None:
    """A linear net: MOON runs the body twice more, forward alone, of the three products a trained layer costs."""
    work = measure("moon", NET)
    body, head, trained = 16 * 64, 64 * 10, 3 * (16 * 64 + 64 * 10) - 16 * 64  # no gradient to the input
    assert work.work == pytest.approx((trained + 2 * body) / trained)
    assert head < body


def test_state_is_what_is_kept() -> None:
    momentum, plain = measure("fedavgm", NET).cost, measure("fedprox", NET).cost
    assert momentum.server_state == {"avgm": momentum.model}
    assert (momentum.client_state, plain.client_state, plain.server_state) == ({}, {}, {})


def test_cost_of_a_net_that_is_not_in_the_zoo_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean mlp"):
        measure("fedavg", Net("mpl", (4,), 2))


def test_packaged_table_is_what_the_repository_says() -> None:
    assert (Path(package.__file__).parent / method_facts.FILE).read_text() == method_facts.gather(REPOSITORY), STALE


def test_status_tells_numbers_of_a_paper_from_examples_of_our_own(tmp_path: Path) -> None:
    """Whoever compresses what travels has no number of a paper; a file that is not there says nothing."""
    tested = {name: row.tested for name, row in method_facts.table().items()}
    for name in ("fedavg-bf16", "fedavg-int8", "fedavg-topk", "feddata"):
        assert tested[name] == "worked examples tested", name
    for name in ("fedavg", "fedlmd", "flea", "scaffold"):
        assert tested[name] == "papers' numbers tested", name
    file = tmp_path / "test_it.py"
    assert method_facts._tested(file) == ""
    file.write_text("def test_numbers_of_the_paper(): ...\n")
    assert method_facts._tested(file) == "worked examples tested"
    file.write_text("import pytest\n\n\n@pytest.mark.papers\ndef test_numbers(): ...\n")
    assert method_facts._tested(file) == "papers' numbers tested"


def test_a_method_is_shown_in_the_setting_that_most_others_were_played_in(tmp_path: Path) -> None:
    lines = ["table,method,dataset,setting,model,preset,partition_seed,seed,rounds,best"]
    played = ("figure9,fedmix,q=3,1", "table1,fedavg,a=1,2", "table1,fedmix,a=1,3", "table1,fedavg,q=3,4")
    for one in (*played, "table1,fedmix,q=3,5", "table1,flea,q=3,6"):
        table, name, setting, best = one.split(",")
        lines.append(f"{table},{name},c,{setting},m,paper,1,0,9,{best}")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "accuracy.csv").write_text("\n".join(lines) + "\n")
    assert method_facts._recorded("fedmix", tmp_path) == ["c q=3: 5.00 % (FedAvg 4.00, 1 seed)"]


def test_pages_are_up_to_date(tmp_path: Path, unskew: Command) -> None:
    assert unskew("methods", "--markdown", tmp_path).code == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(written) == {"README.md", *(f"{name}.md" for name in describe_method.shipped())}
    assert written == {path.name: path.read_text() for path in (REPOSITORY / "docs" / "methods").iterdir()}, STALE


def test_readme_table_is_up_to_date() -> None:
    text = (REPOSITORY / "README.md").read_text()
    assert method_markdown.put(text, method_markdown.overview("docs/methods")) == text, STALE


def test_marks_that_are_missing_are_refused() -> None:
    with pytest.raises(UserError, match="end of methods"):
        method_markdown.put("no marks", "table")


def test_bars_in_a_cell_do_not_end_it() -> None:
    assert method_markdown.grid(("a",), (("|w|",),)).splitlines()[2] == "| &#124;w&#124; |"
