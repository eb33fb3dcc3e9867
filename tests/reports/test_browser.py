"""The page in a real browser, at the widths of a phone, a tablet and a desktop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium")

FIGURES = """[...document.querySelectorAll("figure")].map(figure =>
  [...figure.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect())
    .filter(box => box.width > 100 && box.height > 60 && box.right <= innerWidth).length)"""
TEXT_SIZE = """Math.min(...[...document.querySelectorAll("figure svg text")]
  .filter(text => text.getClientRects().length)
  .map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))"""
PAPER_AND_INK = (
    "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('svg text')).fill]"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_the_page_fits_and_shows_every_figure_once(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    assert browser.console_messages() == []
    assert browser.requests() == []
    assert browser.value("document.documentElement.scrollWidth") == width
    shown = browser.value(FIGURES)
    assert len(shown) > 10
    assert set(shown) == {1}
    assert browser.value(TEXT_SIZE) >= 10


def test_the_table_scrolls_in_its_own_box_on_a_phone(browser: Browser, page: Path) -> None:
    browser.open(page, 390)
    box = browser.value("(b => [b.scrollWidth, b.clientWidth])(document.querySelector('.scroll'))")
    assert box[0] > box[1]


def test_dark_and_light_mode_have_contrast(browser: Browser, page: Path) -> None:
    brightness = {}
    for dark in (False, True):
        browser.open(page, 820, dark=dark)
        brightness[dark] = [_brightness(colour) for colour in browser.value(PAPER_AND_INK)]
    assert brightness[False][0] > 230
    assert brightness[False][1] < 130
    assert brightness[True][0] < 40
    assert brightness[True][1] > 140


def test_print_is_light_even_in_dark_mode_and_fits_the_paper(browser: Browser, page: Path) -> None:
    browser.open(page, 720, dark=True, media="print")
    assert _brightness(browser.value(PAPER_AND_INK)[0]) == 255
    assert browser.value("document.documentElement.scrollWidth") == 720


def _brightness(colour: str) -> float:
    """Mean of `rgb(r, g, b)`."""
    values = [float(value) for value in colour[colour.index("(") + 1 : -1].split(",")]
    return sum(values[:3]) / 3
