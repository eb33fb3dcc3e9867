"""`unskew methods`: the table, the pages, and the measured costs."""

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
STALE = "generated text is out of date; run: make pages"


def test_table_names_every_method(unskew: Command) -> None:
    result = unskew("methods")
    assert result.code == 0
    for name in describe_method.shipped():
        assert f" {name} " in result.out
    assert "Karimireddy et al. 2020" in result.out
    assert "control dc" in result.out


def test_table_as_json(unskew: Command) -> None:
    rows = json.loads(unskew("methods", "--json").out)
    assert [row["method"] for row in rows] == describe_method.shipped()
    by_name = {row["method"]: row for row in rows}
    assert by_name["scaffold"]["leaves the client beyond the model"] == "control dc"
    assert by_name["fedprox"]["leaves the client beyond the model"] == "nothing"
    assert "cifar10" in by_name["scaffold"]["status"]


def test_page_has_equations_settings_traffic_state_and_departures(unskew: Command) -> None:
    result = unskew("methods", "scaffold")
    assert result.code == 0
    out = result.out + " ".join(result.out.split())  # as printed, then with wrapped lines joined
    for words in (
        "    (2)  c_k+ = c_k - c + (w^t - w_k) / (eta a_k)    eta of this round",
        "ICML 2020",
        "scaffold/dc",
        "scaffold/c ",
        "1.00 models",
        "2.00 x up, 2.00 x down",
        "averaged by rows",
        "equations tested",
        "worst -24.25 to 15.31 % (alpha=0.05, released, 1 seed)",
    ):
        assert words in out, words


def test_page_of_a_sum(unskew: Command) -> None:
    result = unskew("methods", "fedprox+avgm")
    for words in ("ce + prox + avgm", "prox.mu", "avgm.beta", "at least 0, below 1", "v <- beta v + d"):
        assert words in result.out, words
    assert "sum_j n_j" not in result.out, "the mean that momentum replaces"


def test_page_as_json(unskew: Command) -> None:
    page = json.loads(unskew("methods", "moon", "--json").out)
    assert page["parts"] == ["ce", "average", "moon"]
    assert [setting["name"] for setting in page["settings"]] == ["mu", "tau"]
    assert page["cost"]["cost"]["passes"] == 2
    assert list(page["cost"]["cost"]["client_state"]) == ["moon"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["methods", "scafold"], "did you mean scaffold?"),
        (["methods", "moon", "--model", "mobilnet_v2"], "did you mean mobilenet_v2?"),
        (["methods", "moon", "--shape", "3,a"], "3,32,32"),
        (["methods", "moon", "--model", "cnn", "--shape", "5"], "does not fit"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str, unskew: Command) -> None:
    result = unskew(*words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


NET = Net("mlp", (16,), 10)


@pytest.mark.parametrize(
    ("name", "up", "down", "passes"),
    [("fedavg", 1, 1, 0), ("fedprox", 1, 1, 0), ("scaffold", 2, 2, 0), ("fedcurv", 3, 3, 0.2), ("moon", 1, 1, 2)],
)
def test_cost_relative_to_fedavg(name: str, up: float, down: float, passes: float) -> None:
    """SCAFFOLD sends a variate of the model's size, FedCurv sends two.

    MOON runs two frozen models per step. FedCurv's Fisher pass sees each row once, five epochs see it five times.
    """
    cost = measure(name, NET)
    assert (cost.up, cost.down) == (pytest.approx(up, abs=0.01), pytest.approx(down, abs=0.01))
    assert cost.cost.passes == pytest.approx(passes)


def test_frozen_passes_count_as_forward_work_only() -> None:
    """On a linear network: a trained layer costs three products, and MOON runs the body twice more, forward only."""
    work = measure("moon", NET)
    body, head, trained = 16 * 64, 64 * 10, 3 * (16 * 64 + 64 * 10) - 16 * 64  # no gradient to the input
    assert work.work == pytest.approx((trained + 2 * body) / trained)
    assert head < body


def test_state_kept_between_rounds_is_measured() -> None:
    momentum, plain = measure("fedavgm", NET).cost, measure("fedprox", NET).cost
    assert momentum.server_state == {"avgm": momentum.model}
    assert (momentum.client_state, plain.client_state, plain.server_state) == ({}, {}, {})


def test_unknown_network_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean mlp"):
        measure("fedavg", Net("mpl", (4,), 2))


def test_packaged_table_is_up_to_date() -> None:
    assert (Path(package.__file__).parent / method_facts.FILE).read_text() == method_facts.gather(REPOSITORY), STALE


def test_status_distinguishes_paper_numbers_from_worked_examples(tmp_path: Path) -> None:
    """Compression parts have no numbers from a paper; a missing test file gives an empty status."""
    tested = {name: row.tested for name, row in method_facts.table().items()}
    for name in ("fedavg-bf16", "fedavg-int8", "fedavg-topk", "feddata"):
        assert tested[name] == "worked examples tested", name
    for name in ("fedavg", "fedlmd", "flea", "scaffold"):
        assert tested[name] == "equations tested", name
    file = tmp_path / "test_it.py"
    assert method_facts._tested(file) == ""
    file.write_text("def test_numbers_of_the_paper(): ...\n")
    assert method_facts._tested(file) == "worked examples tested"
    file.write_text("import pytest\n\n\n@pytest.mark.papers\ndef test_numbers(): ...\n")
    assert method_facts._tested(file) == "equations tested"


def test_recorded_results_are_the_best_and_the_worst_setting(tmp_path: Path) -> None:
    """Compared with FedAvg on the same seeds, whatever table a run was recorded for."""
    lines = ["table,method,dataset,setting,model,preset,partition_seed,seed,rounds,best,superseded"]
    rows = (
        "table1,fedavg,easy,paper,0,80", "table1,moon,easy,paper,0,81", "figure9,moon,easy,paper,0,81",
        "table1,fedavg,hard,fitted,0,40", "table1,fedavg,hard,fitted,1,42",
        "figure2,moon,hard;local.x=1,fitted,0,10",  # FedAvg was not run with local.x=1
        "table3,moon,hard,fitted,0,20", "table3,moon,hard,fitted,1,20",
    )  # fmt: skip
    for one in rows:
        table, name, setting, preset, seed, best = one.split(",")
        lines.append(f"{table},{name},c,{setting},m,{preset},1,{seed},9,{best},")
    lines.append("table1,moon,c,easy,m,paper,1,0,9,99,wrong")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "accuracy.csv").write_text("\n".join(lines) + "\n")
    assert method_facts._recorded("moon", tmp_path) == [
        "c: best +1.00 to 81.00 % (easy, paper, 1 seed), worst -21.00 to 20.00 % (hard, fitted, 2 seeds)"
    ]
    assert method_facts._recorded("fedavg", tmp_path) == [
        "c: best 80.00 % (easy, paper, 1 seed), worst 41.00 % (hard, fitted, 2 seeds)"
    ]


def test_pages_are_up_to_date(tmp_path: Path, unskew: Command) -> None:
    assert unskew("methods", "--markdown", tmp_path).code == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(written) == {"README.md", *(f"{name}.md" for name in describe_method.shipped())}
    assert written == {path.name: path.read_text() for path in (REPOSITORY / "docs" / "methods").iterdir()}, STALE


def test_readme_table_is_up_to_date() -> None:
    text = (REPOSITORY / "README.md").read_text()
    assert method_markdown.replace_between_marks(text, method_markdown.readme_table("docs/methods")) == text, STALE


def test_missing_marks_are_refused() -> None:
    with pytest.raises(UserError, match="end of methods"):
        method_markdown.replace_between_marks("no marks", "table")


def test_vertical_bars_in_a_cell_are_escaped() -> None:
    assert method_markdown.markdown_table(("a",), (("|w|",),)).splitlines()[2] == "| &#124;w&#124; |"


def test_pages_of_others_are_not_overwritten(tmp_path: Path, unskew: Command) -> None:
    (tmp_path / "README.md").write_text("# Mine")
    result = unskew("methods", "--markdown", tmp_path)
    assert (result.code, "expected a page that this command wrote" in result.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "# Mine"
