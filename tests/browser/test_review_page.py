"""A review's page as people meet it: with a mouse, with keys, narrow, dark, without scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import Tab
from tests.kit.changes import PAGES, is_nightly
from tests.report.reviews import HOSTILE_NAMES
from wtxtgit.errors import escaped

pytestmark = [pytest.mark.browser, pytest.mark.sampled(PAGES)]

File = Callable[[str], Path]
WIDE, LAPTOP, NARROW = 1440, 1280, 400
LEAST_CONTRAST = 4.5
"""Of text (WCAG 2.2, 1.4.3)."""
_FIRST = "model.layers.7.self_attn.v_proj.weight"
"""It has a NaN that is new, which must not be missed."""

_CONTRASTS = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return canvas.getImageData(0, 0, 1, 1).data;
}
function luminance(colour) {
  const [r, g, b] = [...rgba(colour)].slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(element) {
  for (let one = element; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    const alpha = rgba(colour)[3];
    if (alpha === 255) return colour;
    if (alpha) throw new Error(`${one.className} is half transparent`);
  }
  throw new Error("nothing has a background");
}
const found = {};
function measure(element, colour) {
  const pair = [colour, ground(element)];
  const [a, b] = pair.map(luminance);
  found[pair.join(" on ")] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (!own || !element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  measure(element, element.closest("svg") ? style.fill : style.color);
}
for (const input of document.querySelectorAll("input")) {
  measure(input, getComputedStyle(input, "::placeholder").color);
}
return found;
"""
_SHADES = """
const found = [];
for (const cell of document.querySelectorAll(".shown .chart")[0].querySelectorAll("svg path")) {
  found.push(getComputedStyle(cell).fill.match(/\\d+/g).map(Number));
}
return found.slice(0, 8);
"""


def rows(tab: Tab) -> list[str]:
    """Names of the tensors that the tables show."""
    names: list[str] = tab.run(
        "return [...document.querySelectorAll('.rows tbody tr:not([hidden]) .name')]"
        ".filter((name) => name.checkVisibility()).map((name) => name.textContent)"
    )
    return names


def chosen(tab: Tab) -> str:
    """The tensor of the first checkpoint that is shown with its pictures."""
    (heading,) = tab.shown(".checkpoint:first-of-type .tensor.shown h4")
    return heading.text


def assert_fits(tab: Tab) -> None:
    """Nothing has to be scrolled sideways, in a window of any width, with all unfolded."""
    tab.run("for (const one of document.querySelectorAll('.checkpoint')) one.open = true")
    for width in (WIDE, 900, NARROW):
        tab.emulate(width=width)
        shown, inner = tab.run("return [document.scrollingElement.scrollWidth, innerWidth]")
        assert isinstance(shown, int)
        assert isinstance(inner, int)
        assert shown <= inner, width


def type_filter(tab: Tab, text: str) -> None:
    box = tab.find("#filter")
    box.clear()
    box.send_keys(text)


@pytest.mark.parametrize("name", ["sample", "hostile"])
def test_it_asks_for_nothing_and_complains_of_nothing(tab: Tab, file: File, name: str) -> None:
    path = file(name)
    tab.open(path)
    type_filter(tab, "r")
    tab.find(".rows thead button").click()
    tab.look()
    assert tab.requests == [path.as_uri()]
    assert tab.messages == []


def test_a_request_would_be_noticed(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<img src=missing.png>")
    tab.open(page)
    assert tab.requests == [page.as_uri(), (tmp_path / "missing.png").as_uri()]
    assert len(tab.messages) == 1


class TestFilter:
    def test_it_narrows(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        assert len(rows(tab)) == 68
        type_filter(tab, "layers.7 ATTN")
        assert rows(tab)
        assert {name.rsplit(".", 2)[0] for name in rows(tab)} == {"model.layers.7.self_attn"}
        assert tab.find("#count").text == f"{len(rows(tab))} of 68 changed tensors"
        assert [one.text for one in tab.shown("h2")] == [
            "checkpoints/support-chat-350m.safetensors"
        ]
        assert chosen(tab) == rows(tab)[0]

    def test_a_slash_leads_to_it(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        tab.find("h1").click()
        tab.press("/")
        assert tab.run("return document.activeElement.id") == "filter"
        tab.press("a/b")
        assert tab.run("return document.activeElement.value") == "a/b"

    def test_it_finds_checkpoints_and_risks(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        type_filter(tab, "tonalit\u00e9")
        assert len(rows(tab)) == 7
        assert [one.text for one in tab.shown("nav a")] == ["adapters/tonalit\u00e9.fold"]
        type_filter(tab, "new nan")
        assert rows(tab) == ["model.layers.7.self_attn.v_proj.weight"]

    def test_escape_brings_all_back(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        type_filter(tab, "no such tensor")
        assert rows(tab) == []
        assert [one.text for one in tab.shown("#nothing")] == ["Nothing matches."]
        tab.press(Keys.ESCAPE)
        assert len(rows(tab)) == 68
        assert not tab.shown("#nothing")

    def test_it_unfolds_what_it_finds(self, tab: Tab, file: File) -> None:
        tab.open(file("hostile"))
        folded = ".checkpoint:not([open])"
        count = len(tab.shown(folded))
        assert count == len(HOSTILE_NAMES) - 1
        type_filter(tab, "onload")
        assert len(tab.shown(folded)) < count
        assert rows(tab)
        type_filter(tab, "")
        tab.press("x", Keys.BACKSPACE)
        assert len(tab.shown(folded)) == count


class TestChoosing:
    def test_with_the_mouse(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        assert chosen(tab) == _FIRST
        cell = tab.find(".rows tbody tr:nth-child(4) td:nth-child(3)")
        cell.click()
        assert chosen(tab) == rows(tab)[3]

    def test_with_keys_alone(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        names = rows(tab)
        for _ in range(60):
            tab.press(Keys.TAB)
            if tab.run("return document.activeElement.matches('.rows tbody a')"):
                break
        focused = "return document.activeElement.textContent"
        assert tab.run(focused) == names[0]
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert tab.run(outline) == "solid"
        tab.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ARROW_DOWN)
        assert tab.run(focused) == names[2] == chosen(tab)
        titles = [one.text.split("\n")[0] for one in tab.shown(".shown figcaption")[:4]]
        assert titles[0] == "Where it changed: blocks of 64 rows"
        assert titles[1:] == ["Values", "Element changes", "Distance in ULPs"]
        assert len(tab.shown(".shown .chart")) >= 4
        tab.press(Keys.END)
        assert tab.run(focused) == chosen(tab) == names[60]
        tab.press(Keys.ARROW_DOWN)
        assert chosen(tab) == names[60]
        tab.press(Keys.HOME)
        assert chosen(tab) == names[0]

    def test_tab_leaves_the_table_at_once(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        tab.run("document.querySelector('.rows tbody a').focus()")
        tab.press(Keys.TAB)
        assert tab.run("return document.activeElement.closest('.rows')") is None

    def test_a_risk_leads_to_its_tensor(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        link = next(one for one in tab.shown(".flags a") if one.text != _FIRST)
        name = link.text
        link.send_keys(Keys.ENTER)
        assert chosen(tab) == name
        assert tab.run(
            "const box = document.querySelector('.tensor.shown').getBoundingClientRect();"
            "return box.top < innerHeight && box.bottom > 0"
        )


class TestSorting:
    def test_by_a_number(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        column = (
            "return [...document.querySelectorAll('.rows')[0].tBodies[0].rows]"
            ".map((row) => parseFloat(row.cells[4].dataset.key))"
        )
        before = tab.run(column)
        sorted_by = "return document.querySelectorAll('.rows [aria-sort]').length"
        assert tab.run(sorted_by) == 1, "not of the first table, in which new NaN comes first"
        button = tab.shown(".rows thead button")[4]
        button.send_keys(Keys.ENTER)
        assert tab.run(column) == sorted(before, reverse=True) != before
        assert tab.find(".rows [aria-sort]").get_attribute("aria-sort") == "descending"
        button.send_keys(Keys.SPACE)
        assert tab.run(column) == sorted(before)
        assert tab.find(".rows [aria-sort]").get_attribute("aria-sort") == "ascending"

    def test_names_count_as_people_do(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        tab.find(".bars thead button").click()
        names = [one.text for one in tab.shown(".checkpoint:first-of-type .bars tbody .name")]
        layers = [name for name in names if name.startswith("model.layers")]
        assert layers == [f"model.layers.{n}" for n in range(12)]

    def test_what_has_no_number_comes_last(self, tab: Tab, file: File) -> None:
        tab.open(file("sample"))
        last = "return document.querySelectorAll('.rows')[1].tBodies[0].lastElementChild.innerText"
        for _ in range(2):
            tab.shown(".checkpoint:last-of-type .rows thead button")[5].click()
            assert tab.run(last).startswith("adapter.layers.3.q4")


class TestLooks:
    @pytest.mark.parametrize("name", ["sample", "hostile"])
    @pytest.mark.parametrize("has_scripts", [True, False])
    def test_nothing_is_scrolled_sideways(
        self, tab: Tab, file: File, name: str, has_scripts: bool
    ) -> None:
        tab.without_script(disabled=not has_scripts)
        tab.open(file(name))
        assert_fits(tab)

    @pytest.mark.skipif(not is_nightly(), reason="it takes long: it runs every night")
    def test_nothing_of_a_big_page_is_scrolled_sideways_without_scripts(
        self, tab: Tab, file: File
    ) -> None:
        tab.without_script(disabled=True)
        tab.open(file("big"))
        assert_fits(tab)

    @pytest.mark.parametrize("width", [1100, LAPTOP, WIDE])
    def test_tables_are_not_cut(self, tab: Tab, file: File, width: int) -> None:
        tab.emulate(width=width)
        tab.open(file("sample"))
        tab.run("for (const one of document.querySelectorAll('.checkpoint')) one.open = true")
        cut = tab.run(
            "return [...document.querySelectorAll('.scroll')]"
            ".map((one) => one.scrollWidth - one.clientWidth)"
        )
        assert isinstance(cut, list)
        assert len(cut) >= 6
        assert max(cut) == 0

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", [WIDE, NARROW])
    def test_text_stands_out(self, tab: Tab, file: File, scheme: str, width: int) -> None:
        tab.emulate(width=width, scheme=scheme)
        tab.open(file("sample"))
        tab.find("#filter").send_keys("")
        contrasts = tab.run(_CONTRASTS)
        assert len(contrasts) >= 10
        assert {pair: c for pair, c in contrasts.items() if c < LEAST_CONTRAST} == {}

    def test_light_and_dark_differ(self, tab: Tab, file: File) -> None:
        grounds = []
        for scheme in ("light", "dark"):
            tab.emulate(width=WIDE, scheme=scheme)
            tab.open(file("sample"))
            grounds.append(tab.run("return getComputedStyle(document.body).backgroundColor"))
        assert grounds == ["rgb(246, 247, 249)", "rgb(18, 21, 26)"]

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_shades_differ_in_brightness(self, tab: Tab, file: File, scheme: str) -> None:
        """Whoever does not see their hue tells them apart."""
        tab.emulate(width=WIDE, scheme=scheme)
        tab.open(file("sample"))
        shades = [sum(colour) for colour in tab.run(_SHADES)]
        assert len(shades) == 8
        assert len(set(shades)) == 8
        assert shades == sorted(shades, reverse=scheme == "light")

    @pytest.mark.parametrize(
        ("name", "width", "scheme"),
        [
            ("light", WIDE, "light"),
            ("dark", WIDE, "dark"),
            ("laptop", LAPTOP, "light"),
            ("narrow", NARROW, "light"),
        ],
    )
    def test_screenshots(self, tab: Tab, file: File, name: str, width: int, scheme: str) -> None:
        tab.emulate(width=width, scheme=scheme)
        tab.open(file("sample"))
        tab.screenshot(f"review-{name}")
        tab.find(".flags a").click()
        tab.screenshot(f"review-{name}-tensor")


class TestHostileText:
    def test_it_does_nothing(self, tab: Tab, file: File) -> None:
        tab.open(file("hostile"))
        names = rows(tab)
        for name in HOSTILE_NAMES[:4]:
            assert escaped(name) in tab.run(
                "return [...document.querySelectorAll('.rows .name')].map((n) => n.textContent)"
            )
        assert names
        # A dialog that is open would make this fail.
        assert tab.run("return document.images.length + document.scripts.length") == 1
        assert tab.run("return getComputedStyle(document.body).display") == "block"

    def test_the_policy_stops_what_would_get_in(self, tab: Tab, file: File) -> None:
        tab.open(file("hostile"))
        tab.run(
            "document.body.insertAdjacentHTML('beforeend',"
            ' \'<img src=x onerror="document.title = 1"><p style="color: red">\')'
        )
        tab.look()
        assert len([said for said in tab.messages if "Content Security Policy" in said]) >= 2
        assert tab.blocked == ["csp"]
        assert tab.run("return document.title") != "1"


def test_without_scripts_all_is_there(tab: Tab, file: File) -> None:
    tab.without_script(disabled=True)
    tab.open(file("sample"))
    assert not tab.shown("#filter")
    assert not tab.shown(".keys")
    assert not tab.shown("thead button")
    assert len(tab.shown(".tensor > summary")) == 68
    assert not tab.shown(".tensor .chart")
    tab.shown(".rows tbody a")[2].click()
    assert len(tab.shown(".tensor[open]")) == 1, "a link unfolds what it leads to"
    assert len(tab.shown(".tensor .chart")) >= 4


def test_a_big_page(tab: Tab, file: File) -> None:
    """All of it on one page that is opened: it takes seconds."""
    path = file("big")
    tab.open(path)
    assert tab.find("#count").text == "2,000 changed tensors"
    assert len(rows(tab)) == 100, "more come where somebody scrolls"
    type_filter(tab, "layers.17.")
    assert len(rows(tab)) == 10
    tab.press(Keys.ESCAPE)
    tab.shown(".rows thead button")[0].click()
    assert rows(tab)[:2] == ["model.layers.0.experts.0.w", "model.layers.0.experts.1.w"]
    tab.shown(".rows thead button")[0].click()
    assert rows(tab)[0] == "model.layers.199.experts.9.w"
    assert_fits(tab)
    tab.look()
    assert tab.requests == [path.as_uri()]
    assert tab.messages == []
