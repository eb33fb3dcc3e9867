"""A figure as SVG inside a page: its colours are the page's variables, its text is the page's text."""

from __future__ import annotations

import re
import warnings
from html import escape
from io import StringIO

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from unskew.report.figures.figure_layout import STYLE, VARIABLES

_NUMBER = re.compile(r"(\d+\.\d\d)\d+")
_GEOMETRY = re.compile(r' (?:d|x|y|width|height|transform|points)="[^"]*"')
_COLOUR = re.compile("|".join(VARIABLES))


def inline(figure: Figure, label: str, key: str) -> Markup:
    """The figure as an `<svg role="img">` of its natural size. key: keeps ids of several figures apart."""
    buffer = StringIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # matplotlib only measures with its own font, which need not have every sign; the browser draws.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    body = text[text.index("<defs>") if "<defs>" in text else text.index("<g") : text.rindex("</svg>")]
    # A style sheet inside an SVG would hold for the whole page, and metadata are of no use in it.
    body = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = _names(body, key)
    body = _GEOMETRY.sub(lambda found: _NUMBER.sub(r"\1", found.group()), body)
    body = _COLOUR.sub(lambda found: f"var(--{VARIABLES[found.group()]})", body)
    body = re.sub(r" font-family: [^;\"]*;| transform=\"rotate\(-0 [^\"]*\"", "", body)
    body = re.sub(r">\s+<", "><", body)
    width, height = (round(72 * inches) for inches in figure.get_size_inches())
    return Markup(
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' stroke-linejoin="round">{body}</svg>'
    )


def _names(body: str, key: str) -> str:
    """Ids that something refers to, told apart by the key; all others go."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    body = re.sub(r' id="([^"]*)"', lambda m: f' id="{key}-{m.group(1)}"' if m.group(1) in used else "", body)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", body)
