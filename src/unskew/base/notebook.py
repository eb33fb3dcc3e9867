"""Progress in a Jupyter notebook: HTML below the cell that is replaced in place, without widgets."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from markupsafe import escape

REFRESH_SECONDS = 0.2


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class LiveHtml:
    """One output of the running cell; `show` replaces its contents, at most every REFRESH_SECONDS."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._make_html = HTML
        self._handle = display(HTML(""), display_id=True)
        self._shown = 0.0

    def show(self, html: str, last: bool = False) -> None:
        """last: show it even if the previous contents are recent."""
        if last or time.monotonic() - self._shown >= REFRESH_SECONDS:
            self._handle.update(self._make_html(html))
            self._shown = time.monotonic()


def progress_bar(done: int, total: int, text: str) -> str:
    """A bar with text behind it, as HTML."""
    return (
        f'<div style="font-family:monospace"><progress value="{done}" max="{max(total, 1)}"></progress> '
        f"{done}/{total} {escape(text)}</div>"
    )


def html_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A plain table; cells of type Markup keep their tags.

    >>> html_table(["method"], [["a<b"]])
    '<table><tr><th>method</th></tr><tr><td>a&lt;b</td></tr></table>'
    """
    lines = [_html_row("th", head), *(_html_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _html_row(tag: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
