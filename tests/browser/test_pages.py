"""Pages of all commands that make any: large and empty ones, narrow, dark, with keys alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import Tab
from tests.kit import Repo, text_of
from tests.kit.changes import PAGES
from tests.review.repos import MODEL, file
from wtxtgit.cli.main import main

pytestmark = [pytest.mark.browser, pytest.mark.sampled(PAGES)]

TENSORS = 3000
LONG = "x" * 200
WIDTHS = (400, 1000, 1600)
KINDS = ("inspect", "diff", "history", "review")
BOX = "document.querySelector('.rows').closest('.scroll')"
_ROWS = "return document.querySelectorAll('.rows tbody tr').length"
_SEEN = """() => {
const frame = document.querySelector('.rows').closest('.scroll').getBoundingClientRect();
return document.elementFromPoint(frame.left + 40, frame.top + frame.height / 2).closest('tr');
}"""
_COLLISIONS = """
const found = [];
for (const chart of document.querySelectorAll("svg.chart")) {
  if (!chart.checkVisibility()) continue;
  const texts = [...chart.querySelectorAll("text")];
  const boxes = texts.map((one) => one.getBoundingClientRect());
  const frame = chart.getBoundingClientRect();
  boxes.forEach((a, i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1) found.push(texts[i].textContent);
    boxes.slice(i + 1).forEach((b, j) => {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) {
        found.push(`${texts[i].textContent} on ${texts[i + 1 + j].textContent}`);
      }
    });
  });
}
return found;
"""
_CUT = """
return [...document.querySelectorAll("body :not(.tensor:not(.shown) *)")].filter((one) =>
  one.checkVisibility() && !one.closest("svg") && !one.matches(".hidden")
  && getComputedStyle(one).overflowX === "hidden" && one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.outerHTML.slice(0, 100));
"""
_SIDEWAYS = """
return [...document.querySelectorAll(".scroll")].filter((one) =>
  one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.innerHTML.slice(0, 100));
"""
_AXE = """
const done = arguments[arguments.length - 1];
axe.run().then((report) => done(report.violations.map(
  (one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`)));
"""


def weights(step: int) -> dict[str, Any]:
    """Very many tensors, with long names, some of NaN alone, and one without items."""
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for n in range(TENSORS - 2):
        name = f"model.layers.{n // 10}.experts.{n % 10}.{LONG[:170] if n % 100 == 0 else 'w'}"
        made[name] = rng.standard_normal((8, 6)).astype("f4") * np.float32(1 + step * (n % 7))
        if n % 500 == 3:
            made[name][:] = np.nan
    return made | {LONG: np.full((4, 8), np.nan, "f4"), "empty": np.zeros((0, 4), "f4")}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Pages that the commands made, by the command, of many, some and few tensors, or none."""
    folder = tmp_path_factory.mktemp("made")
    contents = {
        "old": weights(0),
        "new": weights(1),
        "some": {f"layers.{n}.w": np.full((9, 9), n, "f4") for n in range(6)},
        "more": {f"layers.{n}.w": np.full((9, 9), 2 * n, "f4") for n in range(6)},
        "nan": {"n": np.full((4, 8), np.nan, "f4")},
        "none": {},
    }
    for name, content in contents.items():
        (folder / f"{name}.safetensors").write_bytes(file(content))
    repo = Repo(folder / "repo")
    repo.path.mkdir()
    repo.git("init", "-q")
    repo.track("*.safetensors")
    who = {"GIT_AUTHOR_NAME": LONG, "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "c"}
    paths = (MODEL, "some.safetensors", "few.safetensors")
    first = dict(zip(paths, ("old", "some", "nan"), strict=True))
    for commit in (first, {paths[0]: "new"}, {paths[1]: "more"}, {paths[2]: "none"}):
        for path, name in commit.items():
            repo.write(path, text_of(file(contents[name])))
        repo.add()
        repo.git("commit", "-qm", LONG, env={**who, "GIT_COMMITTER_EMAIL": "c"})
    made = {
        "inspect": ("inspect", "new.safetensors"),
        "diff": ("diff", "old.safetensors", "new.safetensors"),
        "history": ("history", MODEL),
        "review": ("review", "HEAD~3...HEAD"),
        "inspect-some": ("inspect", "more.safetensors"),
        "diff-some": ("diff", "some.safetensors", "more.safetensors"),
        "history-some": ("history", "some.safetensors"),
        "review-some": ("review", "HEAD~2...HEAD~1"),
        "inspect-few": ("inspect", "nan.safetensors"),
        "diff-few": ("diff", "nan.safetensors", "none.safetensors"),
        "history-few": ("history", "few.safetensors"),
        "review-few": ("review", "HEAD~1...HEAD"),
    }
    found = {}
    here = Path.cwd()
    for name, (command, *arguments) in made.items():
        found[name] = folder / f"{name}.html"
        page = ("--no-cache", "--format", "html", "-o") if command == "review" else ("--html",)
        os.chdir(repo.path if command in ("history", "review") else folder)
        try:
            assert main([command, *arguments, *page, str(found[name])]) == 0
        finally:
            os.chdir(here)
    return found


@pytest.mark.parametrize("few", ["", "-few"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_overlaps_or_is_cut(
    tab: Tab, pages: Mapping[str, Path], kind: str, few: str
) -> None:
    page = pages[kind + few]
    tab.open(page)
    assert tab.requests == [page.as_uri()]
    assert tab.messages == []
    for width in WIDTHS:
        # Colours move nothing.
        tab.emulate(width=width, scheme="dark" if width == 1000 else "light")
        shown, inner = tab.run("return [document.scrollingElement.scrollWidth, innerWidth]")
        assert shown <= inner, width
        assert tab.run(_COLLISIONS) == [], width
        assert tab.run(_CUT) == [], width
        assert tab.run(_SIDEWAYS) == [], width
        tab.screenshot(f"{kind}{few}-{width}")


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(tab: Tab, pages: Mapping[str, Path], kind: str) -> None:
    axe = (files("axe_core_python") / "axe.min.js").read_text("utf-8")
    # Of thousands of rows it takes minutes, and finds what it finds in one.
    for size, scheme in (("-some", "light"), ("-some", "dark"), ("-few", "light")):
        tab.emulate(width=1000, scheme=scheme)
        tab.open(pages[kind + size])
        tab.run(axe)
        assert tab.answered(_AXE) == [], (size, scheme)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_alone_do_all(tab: Tab, pages: Mapping[str, Path], kind: str) -> None:
    tab.open(pages[kind])
    count = tab.find("#count").text
    assert kind != "inspect" or count == "3,000 tensors"
    tab.press("/")
    tab.press("layers.17. experts.3")
    assert tab.find("#count").text.startswith("1 of ")
    tab.press(Keys.ESCAPE)
    assert tab.find("#count").text == count
    focused = "return document.activeElement.matches(arguments[0])"
    for selector in (".rows thead button", ".rows tbody a"):
        for _ in range(40):
            if tab.run(focused, selector):
                break
            tab.press(Keys.TAB)
        assert tab.run(focused, selector)
        if selector.endswith("button"):
            tab.press(Keys.ENTER)
            assert tab.find(".rows [aria-sort]").get_attribute("aria-sort") == "ascending"
    tab.press(Keys.ARROW_DOWN)
    name = tab.run("return document.activeElement.textContent")
    (heading, *_) = tab.shown(".tensor.shown h4")
    assert heading.text == name
    tab.press(Keys.END)
    assert tab.run("return document.activeElement.checkVisibility()")
    assert tab.run("return document.activeElement.tabIndex") == 0


def test_keys_go_on_where_more_rows_come(tab: Tab, pages: Mapping[str, Path]) -> None:
    tab.open(pages["inspect"])
    links = "[...document.querySelectorAll('.rows tbody a')]"
    names = tab.run(f"return {links}.map((link) => link.textContent)")
    begin = len(names) - 20
    tab.run(f"{links}[{begin}].focus()")
    for name in names[begin + 1 :]:
        tab.press(Keys.ARROW_DOWN)
        tab.answered("requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))")
        assert tab.run("return document.activeElement.textContent") == name
    assert tab.run("return document.querySelectorAll('.rows tbody tr').length") > 100


def scrolled(tab: Tab, act: Callable[[], object]) -> None:
    """Scroll the table in some way, and wait until the page has answered that."""
    tab.run(
        f"window.scrolled = new Promise((done) => {BOX}.addEventListener("
        "'scroll', () => requestAnimationFrame(() => done()), {once: true}))"
    )
    act()
    tab.answered("scrolled.then(arguments[0])")


def test_more_rows_come_where_somebody_scrolls(tab: Tab, pages: Mapping[str, Path]) -> None:
    tab.open(pages["inspect"])
    assert tab.run(_ROWS) == 100
    for wanted in (200, 300):
        scrolled(tab, lambda: tab.run(f"{BOX}.scrollTop = {BOX}.scrollHeight"))
        assert tab.run(_ROWS) == wanted


def test_the_last_line_is_reached_at_once(tab: Tab, pages: Mapping[str, Path]) -> None:
    """Those before it come where somebody scrolls up, and what is seen stays where it is."""
    tab.open(pages["inspect"])
    tab.run("document.querySelector('.rows tbody a').focus()")
    scrolled(tab, lambda: tab.press(Keys.END))
    focused = "return document.activeElement.matches('.rows tbody a')"
    assert tab.run(focused)
    there = tab.run(_ROWS)
    assert there <= 200
    scrolled(tab, lambda: tab.run(f"{BOX}.scrollTop = 200; window.seen = ({_SEEN})()"))
    assert tab.run(_ROWS) > there
    assert tab.run(f"return ({_SEEN})() === seen")
    assert tab.run(focused)


def test_a_sorted_table_begins_at_its_top(tab: Tab, pages: Mapping[str, Path]) -> None:
    """Whichever tensor is chosen, and even if none of the first lines has pictures."""
    tab.open(pages["inspect"])
    chosen = tab.shown(".tensor.shown h4")[0].text
    scrolled(tab, lambda: tab.run(f"{BOX}.scrollTop = 2000"))
    name = tab.shown(".rows thead button")[0]
    name.click()
    name.click()
    assert tab.run(_ROWS) == 100
    assert tab.run(f"return {BOX}.scrollTop") == 0
    assert not tab.run("return document.querySelector('.rows tbody a')"), "of another hundred"
    assert tab.shown(".tensor.shown h4")[0].text == chosen
    # Keys alone reach the other lines.
    for _ in range(20):
        if tab.run(f"return document.activeElement === {BOX}"):
            break
        tab.press(Keys.TAB)
    scrolled(tab, lambda: tab.press(Keys.PAGE_DOWN))
