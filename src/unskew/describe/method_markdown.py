"""Write pages and tables as Markdown, for `docs/methods/` and for the part of the README between two marks."""

from __future__ import annotations

import re

from unskew.base.errors import UserError
from unskew.describe.describe_method import describe, shipped
from unskew.describe.method_cost import DIGITS, measure
from unskew.describe.method_facts import MethodFacts, table
from unskew.describe.method_page import GENERATED, HEAD, PageSection, Row, row, sections

RECORDED = (
    "for each dataset the settings in which the method was best and worst compared with FedAvg: points above FedAvg, "
    "accuracy (best over the rounds, mean over seeds), skew, preset, number of seeds."
)
BEGIN, END = "<!-- methods -->", "<!-- end of methods -->"


def pages() -> dict[str, str]:
    """File name -> text, for the page of every method and the index."""
    facts = table()
    files = {"README.md": _index(facts)}
    for name in shipped():
        method = describe(name)
        page_sections = sections(method, measure(name), DIGITS, facts.get(name))
        files[f"{name}.md"] = "\n".join(
            [GENERATED, f"# {name}", f"`{' + '.join(method.parts)}`", "", *map(_section, page_sections)]
        )
    return files


def readme_table(folder: str) -> str:
    """The README's table of methods: name, paper, what is sent, result; names link into `folder`."""
    rows = []
    for name in shipped():
        method, facts = describe(name), table().get(name)
        recorded = (facts.recorded if facts else "") or "none yet"
        source = f"{method.headline.title} ({method.headline.cited})"
        rows.append((f"[`{name}`]({folder}/{name}.md)", source, method.sent_besides_model, recorded))
    head = (
        "method",
        "paper",
        "leaves the client beyond the model",
        "recorded: points above FedAvg, best and worst setting",
    )
    return markdown_table(head, tuple(rows))


def replace_between_marks(text: str, content: str) -> str:
    """Replace the part of a page between its marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UserError(f"expected exactly one {BEGIN} and one {END} in the page; write each mark on its own line")
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{content}{END}", text, flags=re.DOTALL)


def markdown_table(head: Row, rows: tuple[Row, ...]) -> str:
    """A Markdown table; vertical bars in cells are escaped."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _index(facts: dict[str, MethodFacts]) -> str:
    rows = []
    for name in shipped():
        first, *rest = row(describe(name), facts.get(name))
        rows.append((f"[{first}]({first}.md)", *rest))
    intro = (
        "Methods can be combined with +: `unskew methods fedprox+avgm` prints the page of the sum. Bytes and work are "
        f"multiples of FedAvg's, measured in a dry run ({DIGITS}). Tested: the equations, on numbers worked out by "
        "hand from the paper; that does not mean that the paper's accuracies were reached, which "
        f"[results](../results.md) shows. Recorded: {RECORDED} Every method also sends each client's number of rows."
    )
    return f"{GENERATED}\n# Methods\n\n{intro}\n\n{markdown_table(HEAD, tuple(rows))}"


def _section(section: PageSection) -> str:
    title = [f"## {section.title}\n"] if section.title else []
    text = [f"{line}\n" for line in section.text]
    lines = ["```\n" + "\n".join(section.lines) + "\n```\n"] if section.lines else []
    return "\n".join([*title, *text, *lines, *([markdown_table(section.head, section.rows)] if section.rows else [])])
