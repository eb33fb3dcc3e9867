"""Pages and tables as Markdown: `docs/methods/` and the part of the README between its two marks."""

from __future__ import annotations

import re

from unskew.base.errors import UserError
from unskew.describe.describe_method import describe, shipped
from unskew.describe.method_cost import DIGITS, measure
from unskew.describe.method_facts import MethodFacts, table
from unskew.describe.method_page import GENERATED, HEAD, PageSection, Row, row, sections

BEGIN, END = "<!-- methods -->", "<!-- end of methods -->"


def pages() -> dict[str, str]:
    """Every page by its file's name, the index among them."""
    known = table()
    found = {"README.md": _index(known)}
    for name in shipped():
        method = describe(name)
        told = sections(method, measure(name), DIGITS, known.get(name))
        found[f"{name}.md"] = "\n".join(
            [GENERATED, f"# {name}", f"`{' + '.join(method.parts)}`", "", *map(_section, told)]
        )
    return found


def overview(folder: str) -> str:
    """The short table for the README: name, paper, what leaves, result; names link into `folder`."""
    rows = []
    for name in shipped():
        method, known = describe(name), table().get(name)
        recorded = (known.recorded if known else "") or "none yet"
        cited = f"{method.headline.title} ({method.headline.cited})"
        rows.append((f"[`{name}`]({folder}/{name}.md)", cited, method.beyond, recorded))
    head = ("method", "paper", "leaves the client beyond the model", "recorded best accuracy")
    return grid(head, tuple(rows))


def put(text: str, inside: str) -> str:
    """A page with the part between its marks replaced."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UserError(
            f"expected one {BEGIN} and one {END} in the page, found others; write both marks on their own lines"
        )
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{inside}{END}", text, flags=re.DOTALL)


def grid(head: Row, rows: tuple[Row, ...]) -> str:
    """A table; bars inside a cell are written so that they do not end it."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _index(known: dict[str, MethodFacts]) -> str:
    rows = []
    for name in shipped():
        first, *rest = row(describe(name), known.get(name))
        rows.append((f"[{first}]({first}.md)", *rest))
    told = (
        "Any sum of these is a method too: `unskew methods fedprox+avgm` prints its page. Bytes and work are multiples "
        f"of FedAvg's, measured in a dry run ({DIGITS}). Results are the best accuracy over the rounds, mean over "
        "seeds, beside FedAvg's in the same setting with the same seeds."
    )
    return f"{GENERATED}\n# Methods\n\n{told}\n\n{grid(HEAD, tuple(rows))}"


def _section(section: PageSection) -> str:
    title = [f"## {section.title}\n"] if section.title else []
    text = [f"{line}\n" for line in section.text]
    lines = ["```\n" + "\n".join(section.lines) + "\n```\n"] if section.lines else []
    return "\n".join([*title, *text, *lines, *([grid(section.head, section.rows)] if section.rows else [])])
