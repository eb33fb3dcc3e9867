"""A real notebook: a method written in a cell, run, compared and reported; cells executed twice."""

from __future__ import annotations

from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

CELLS = (
    """
import unskew as us

@us.part("test-shrink")
class Shrink(us.Part):
    strength: float = 0.01

    def loss(self, view):
        return self.strength * sum(w.pow(2).sum() for w in view.parameters.values())

us.method("test-fedshrink", "fedavg", "test-shrink")
experiment = us.Experiment(
    method="test-fedshrink", data="digits", model="mlp", rounds=2, device="cpu",
    partition={"name": "iid", "clients": 3}, local={"epochs": 1, "batch": 64}, engine={"workers": 1},
)
""",
    'us.run(experiment, out="run")',
    'us.compare(experiment, methods=["fedavg", "test-fedshrink"], seeds=[0], out="grid")',
    'us.report("grid", "page.html").name',
)


def outputs(cell: Any, kind: str) -> list[str]:
    """The HTML or text of a cell's outputs of one kind, or what it printed."""
    if kind == "stream":
        return [output.text for output in cell.outputs if output.output_type == "stream"]
    return [output.data.get("text/html", output.data.get("text/plain")) for output in cell.outputs
            if output.output_type == kind]  # fmt: skip


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All cells, then all of them once more in the same kernel."""
    folder = tmp_path_factory.mktemp("notebook")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text.strip()) for text in CELLS * 2])
    edited = CELLS[0].strip().replace("return self.strength", "return 2 * self.strength")
    book.cells += [nbformat.v4.new_code_cell(text) for text in (edited, 'us.run(experiment, out="run")')]
    book.cells[-1].metadata["tags"] = ["raises-exception"]
    nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    return book, folder


def test_a_run_shows_a_bar_and_its_result(executed: Any) -> None:
    cell = executed[0].cells[1]
    (bar,) = outputs(cell, "display_data")
    assert '<progress value="2" max="2">' in bar
    assert "test-fedshrink" in bar
    (result,) = outputs(cell, "execute_result")
    assert "<table" in result
    assert outputs(cell, "stream") == []


def test_a_method_of_the_notebook_is_compared(executed: Any) -> None:
    book, folder = executed
    (table,) = outputs(book.cells[2], "display_data")  # nothing else is printed
    assert "test-fedshrink" in table
    assert "done" in table
    (result,) = outputs(book.cells[2], "execute_result")
    assert "test-fedshrink" in result
    assert "<b>" in result
    assert "page.html" in outputs(book.cells[3], "execute_result")[0]
    assert "test-fedshrink" in (folder / "page.html").read_text()


def test_cells_executed_again_return_what_is_finished(executed: Any) -> None:
    """Also the cell that defines the method: a class defined again replaces the first."""
    cells = executed[0].cells
    half = len(CELLS)  # then the cells of the last test
    for first, second in zip(cells[1:half], cells[half + 1 : 2 * half]):
        assert outputs(first, "execute_result") == outputs(second, "execute_result")
    assert outputs(cells[half + 1], "display_data") == []  # nothing runs, so no bar


def test_a_method_that_was_edited_does_not_return_the_old_run(executed: Any) -> None:
    (error,) = [output for output in executed[0].cells[-1].outputs if output.output_type == "error"]
    assert error.ename == "UserError"
    assert "a notebook or an interactive session was changed since this run was started" in error.evalue
