"""The audit's page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from report.browser import CHROMIUM, Browser
from unskew.audit.page.audit_page import write

from .pages import made

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium")
SHOWN = """[...document.querySelectorAll("figure")].map(figure =>
  [...figure.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect())
    .filter(box => box.width > 100 && box.height > 60 && box.right <= innerWidth).length)"""
LOADED = "[...document.images].every(image => image.complete && image.naturalWidth === 8)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(made(), tmp_path_factory.mktemp("audit") / "audit.html")


@pytest.mark.parametrize("width", [390, 820, 1440])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_shows_every_figure_and_picture(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value(SHOWN) == [1, 1]
    assert browser.value(LOADED)


def test_pictures_scroll_in_their_own_box_on_a_phone_with_their_names_in_sight(browser: Browser, page: Path) -> None:
    browser.open(page, 390)
    box = "document.querySelector('.scroll:has(.pictures)')"
    assert browser.value(f"{box}.scrollWidth > {box}.clientWidth")
    left = f"(b => {{b.scrollLeft = 200; return b.querySelector('tbody th').getBoundingClientRect().left}})({box})"
    assert browser.value(left) >= 0
