"""A figure as inline SVG that uses the page's colour variables and fonts."""

from __future__ import annotations

import re
import warnings
from html import escape
from io import StringIO

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from unskew.reports.figures.figure_layout import STYLE, VARIABLES

_NUMBER = re.compile(r"(\d+\.\d\d)\d+")
_GEOMETRY = re.compile(r' (?:d|x|y|width|height|transform|points)="[^"]*"')
_COLOUR = re.compile("|".join(VARIABLES))


def inline(figure: Figure, label: str, key: str) -> Markup:
    """The figure as an `<svg role="img">` in its natural size. key: prefix of its ids, different for every figure."""
    buffer = StringIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # matplotlib uses its own font only to measure text; the browser draws it, so missing glyphs do not matter.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    body = text[text.index("<defs>") if "<defs>" in text else text.index("<g") : text.rindex("</svg>")]
    # A style sheet inside an SVG would apply to the entire page; metadata would only take space.
    body = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = _prefix_ids(body, key)
    body = _GEOMETRY.sub(lambda match: _NUMBER.sub(r"\1", match.group()), body)
    body = _COLOUR.sub(lambda match: f"var(--{VARIABLES[match.group()]})", body)
    body = re.sub(r" font-family: [^;\"]*;| transform=\"rotate\(-0 [^\"]*\"", "", body)
    body = re.sub(r">\s+<", "><", body)
    width, height = (round(72 * inches) for inches in figure.get_size_inches())
    return Markup(
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' stroke-linejoin="round">{body}</svg>'
    )


def _prefix_ids(body: str, key: str) -> str:
    """Prefix the ids that are referenced with the key and remove all others."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    body = re.sub(r' id="([^"]*)"', lambda m: f' id="{key}-{m.group(1)}"' if m.group(1) in used else "", body)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", body)
