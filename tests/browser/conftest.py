"""One browser for all tests, and the pages that they open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Tab, chromium
from tests.report.reviews import big, hostile, sample
from wtxtgit.report.html.review import page

MADE = {"sample": sample, "big": big, "hostile": hostile}


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A page as a file, by the name of its review."""
    folder = tmp_path_factory.mktemp("pages")

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page(MADE[name]()), "utf-8")
        return path

    return write


@pytest.fixture
def tab(window: Tab) -> Tab:
    """The browser, as wide as a desk's, light, with scripts."""
    window.emulate(width=1440)
    window.without_script(disabled=False)
    return window
