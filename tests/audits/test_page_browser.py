"""The audit page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.browser import CHROMIUM, Browser
from unskew.audits.page.audit_page import write

from .pages import example_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium")
SHOWN = """[...document.querySelectorAll("figure")].map(figure =>
  [...figure.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect())
    .filter(box => box.width > 100 && box.height > 60 && box.right <= innerWidth).length)"""
LOADED = "[...document.images].every(image => image.complete && image.naturalWidth === 8)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(example_page(), tmp_path_factory.mktemp("audit") / "audit.html")


@pytest.mark.parametrize("width", [390, 820, 1440])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_the_screen_and_shows_every_figure_and_image(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    assert browser.console_messages() == []
    assert browser.requests() == []
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value(SHOWN) == [1, 1]
    assert browser.value(LOADED)


def test_on_a_phone_the_image_table_scrolls_and_its_row_names_stay_visible(browser: Browser, page: Path) -> None:
    browser.open(page, 390)
    box = "document.querySelector('.scroll:has(.pictures)')"
    assert browser.value(f"{box}.scrollWidth > {box}.clientWidth")
    left = f"(b => {{b.scrollLeft = 200; return b.querySelector('tbody th').getBoundingClientRect().left}})({box})"
    assert browser.value(left) >= 0
