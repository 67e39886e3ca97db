"""A review as an HTML page: what it holds, how much of it, and that hostile text stays text."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.markup import Markup, parsed
from tests.report.reviews import (
    BASE,
    HEAD,
    HOSTILE_NAMES,
    big,
    changed_tensor,
    hostile,
    reviewed,
    sample,
)
from wtxtgit.errors import clipped, escaped
from wtxtgit.report.diff import TensorDiff, TensorStatus
from wtxtgit.report.html import bounds
from wtxtgit.report.html.bounds import MOST_NAME, PICTURED_OF_PAGE, ROWS_OF_PAGE
from wtxtgit.report.html.review import page
from wtxtgit.report.review import Flag, Review, Risk

TAGS = {
    "html", "head", "meta", "title", "style", "script", "body", "header", "main", "nav", "section",
    "div", "p", "span", "h1", "h2", "h3", "h4", "a", "bdi", "wbr", "br", "code", "dl", "dt", "dd",
    "ul", "ol", "li", "details", "summary", "figure", "figcaption", "label", "input", "output",
    "table", "thead", "tbody", "tr", "th", "td",
    "svg", "g", "path", "rect", "line", "text",
}  # fmt: skip
"""All that a page is made of."""
ATTRIBUTES = {
    "aria-hidden", "aria-label", "aria-live", "aria-sort", "autocomplete", "charset", "class",
    "content", "d", "data-key", "data-label", "data-noun", "data-sort",
    "for", "height", "hidden", "href", "http-equiv", "id",
    "lang", "name", "open", "overflow", "placeholder", "preserveaspectratio", "role", "scope",
    "spellcheck", "tabindex", "text-anchor", "type", "viewbox", "width", "x", "x1", "x2", "y", "y1",
    "y2",
}  # fmt: skip
MOST_BYTES = 6_000_000


@pytest.fixture(scope="module")
def ordinary() -> Markup:
    return parsed(page(sample()))


@pytest.fixture(scope="module")
def attacked() -> Markup:
    return parsed(page(hostile()))


class TestAnyPage:
    @pytest.fixture(params=["ordinary", "attacked"])
    def found(self, request: pytest.FixtureRequest) -> Markup:
        found: Markup = request.getfixturevalue(request.param)
        return found

    def test_it_is_made_of_these_elements_alone(self, found: Markup) -> None:
        assert {element.tag for element in found.elements} <= TAGS
        assert {name for element in found.elements for name in element.attributes} <= ATTRIBUTES

    def test_links_lead_into_the_page(self, found: Markup) -> None:
        ids = [one.attributes["id"] for one in found.elements if "id" in one.attributes]
        assert len(set(ids)) == len(ids)
        links = [link.attributes["href"] for link in found.of("a")]
        assert links
        assert {link.removeprefix("#") for link in links} <= set(ids)

    def test_its_policy_allows_its_own_script_and_style_alone(self, found: Markup) -> None:
        policies = [one.attributes for one in found.of("meta") if "http-equiv" in one.attributes]
        assert [one["http-equiv"] for one in policies] == ["Content-Security-Policy"]
        sources = [found.the(tag).text for tag in ("style", "script")]
        style, script = (b64encode(sha256(source.encode()).digest()).decode() for source in sources)
        assert policies[0]["content"].split("; ") == [
            "default-src 'none'",
            f"style-src 'sha256-{style}'",
            f"script-src 'sha256-{script}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]

    def test_the_policy_comes_before_what_it_is_about(self, found: Markup) -> None:
        tags = [element.tag for element in found.elements]
        assert tags.index("meta") < tags.index("style") < tags.index("script") < tags.index("body")
        first = [one.attributes for one in found.of("meta")[:2]]
        assert "charset" in first[0]
        assert "http-equiv" in first[1]

    def test_script_and_style_hold_nothing_of_the_review(self, found: Markup) -> None:
        nothing = parsed(page(Review("a", "b", BASE, HEAD, 0)))
        for tag in ("script", "style"):
            assert found.the(tag).text == nothing.the(tag).text

    def test_pictures_are_named(self, found: Markup) -> None:
        charts = found.of("svg", "chart")
        assert charts
        assert all(chart.attributes["aria-label"].strip() for chart in charts)


class TestHostileText:
    def test_all_of_it_is_shown_as_text(self, attacked: Markup) -> None:
        names = [element.text for element in attacked.of("bdi")]
        for name in HOSTILE_NAMES:
            assert escaped(clipped(name, MOST_NAME)) in names

    def test_nothing_controls_letters_or_lines(self) -> None:
        text = page(hostile())
        assert all(c.isprintable() or c == "\n" for c in text)
        text.encode("utf-8")

    def test_no_name_is_longer_than_a_name(self, attacked: Markup) -> None:
        # Of what is escaped, each character may become ten.
        assert max(len(element.text) for element in attacked.of("bdi")) <= 10 * (MOST_NAME + 3)

    @given(st.text(max_size=40))
    def test_any_name(self, name: str) -> None:
        flag = Flag(Risk.UNUSUAL, name, name)
        one = reviewed(
            name.encode("utf-8", "surrogatepass"), [changed_tensor(1, name, (4, 4))], (flag,)
        )
        found = parsed(page(Review(name, name, name, name, 1, (one,), (name,))))
        assert {element.tag for element in found.elements} <= TAGS
        assert {name for element in found.elements for name in element.attributes} <= ATTRIBUTES
        assert escaped(name) in [element.text for element in found.of("bdi")]


class TestWhatIsTold:
    def test_the_head(self, ordinary: Markup) -> None:
        header = " ".join(ordinary.the("header").text.split())
        assert "main \u2192 finetune/support-chat" in header
        assert f"Commits {BASE[:12]} to {HEAD[:12]}" in header
        assert "Checkpoints 2" in header
        assert "Tensors changed 68" in header
        assert "Flags 6" in header
        assert "wtxtgit.trustRoot is not set" in header

    def test_checkpoints_keep_their_order(self, ordinary: Markup) -> None:
        assert [heading.text for heading in ordinary.of("h2")] == [
            "checkpoints/support-chat-350m.safetensors",
            "adapters/tonalit\u00e9.fold",
        ]

    def test_risks_have_words(self, ordinary: Markup) -> None:
        section = ordinary.of("section", "flags")[0]
        lines = [" ".join(line.split()) for line in section.text.strip().split("\n")]
        assert "New NaN model.layers.7.self_attn.v_proj.weight: 3 items are NaN that were not" in (
            lines
        )
        assert lines[2].startswith("Unknown signer")
        assert [line.rsplit(" model", 1)[0] for line in lines[:2]] == ["New NaN", "New Inf"]

    def test_generations_stand_by_their_commits(self, ordinary: Markup) -> None:
        commits = ordinary.of("ol", "commits")[0].text.strip().split("\n")
        assert commits[0].endswith("data: support tickets up to April")
        assert commits[1].endswith("train: 1,600 steps at 3e-5 Generation 8")
        assert commits[2].endswith("Generation 9")

    def test_the_limit_of_the_forge(self, ordinary: Markup) -> None:
        texts = [element.text for element in ordinary.of("p")]
        assert "The forge's limit for one blob is 100 MiB; the text uses 86.3% of it" in texts

    def test_new_nan_comes_first_then_what_changed_most(self, ordinary: Markup) -> None:
        tables = ordinary.of("table", "rows")
        assert [len(re.findall("weight|3.q4", table.text)) for table in tables] == [61, 7]
        spoilt, first = (one.text for one in ordinary.of("details", "tensor")[:2])
        assert "model.layers.7.self_attn.v_proj.weight" in spoilt
        assert "model.layers.11.mlp.down_proj.weight" in first
        assert "31% (L2 28.6)" in first
        assert "Rows 0\u20133, 16\u201320" in first

    def test_it_is_the_same_each_time(self) -> None:
        assert page(sample()) == page(sample())

    def test_no_address_is_in_it(self) -> None:
        text = page(sample())
        assert "//" not in re.sub(r"(?m)(^ *|<script>)// .*$", "", text)
        assert not re.search(r"url\(|@import|\b(?:src|srcset|action)=", text)

    def test_nothing_changed(self) -> None:
        found = parsed(page(Review("a", "b", BASE, HEAD, 0)))
        assert found.the("main").text.split("\n")[1] == "No checkpoint changed."
        assert not found.of("input")

    def test_what_can_not_be_compared_says_why(self) -> None:
        one = replace(reviewed(b"m", []), diff=None, reason="m: it is damaged", groups=())
        found = parsed(page(Review("a", "b", BASE, HEAD, 1, (one,))))
        assert "Not compared: m: it is damaged" in [p.text for p in found.of("p", "note")]
        assert not found.of("table")

    def test_tensors_without_numbers(self) -> None:
        recast = TensorDiff(
            "w", TensorStatus.CHANGED, "f32", (4,), base_shape=(2, 2), reason="two shapes"
        )
        found = parsed(page(Review("a", "b", BASE, HEAD, 1, (reviewed(b"m", [recast]),))))
        told = found.the("details", "tensor").text
        assert "f32, 2 x 2 \u2192 4" in told
        assert "Not compared: two shapes" in told


class TestHowMuch:
    @pytest.mark.slow
    def test_many_tensors(self) -> None:
        text = page(big(2000))
        assert len(text.encode()) < MOST_BYTES
        found = parsed(text)
        assert len(found.of("details", "tensor")) == PICTURED_OF_PAGE
        assert len(found.the("table", "rows").text.strip().split("\n")) == 2 + 2000
        assert not found.of("p", "more")[:-1], "the last one is for what a filter leaves"
        assert (
            f"The {PICTURED_OF_PAGE} that changed most have pictures."
            in found.the("p", "keys").text
        )

    def test_too_many_tensors(self) -> None:
        tensors = [changed_tensor(1, f"w{n}", (4, 4)) for n in range(ROWS_OF_PAGE + 500)]
        one = replace(reviewed(b"m", tensors), distributions={})
        found = parsed(page(Review("a", "b", BASE, HEAD, 1, (one,))))
        assert "and 500 more changed tensors" in [p.text for p in found.of("p", "more")]

    @pytest.mark.slow
    def test_too_much_of_everything(self) -> None:
        one = sample().artifacts[0]
        many = replace(
            one,
            flags=one.flags * 50,
            groups=one.groups * 50,
            commits=one.commits * 50,
            seal=replace(one.seal, generations=one.seal.generations * 50),
        )
        review = Review("a", "b", BASE, HEAD, 1, (many,) * 250, ("a note",) * 70)
        text = page(review)
        assert len(text.encode()) < 2 * MOST_BYTES
        more = {p.text for p in parsed(text).of("p", "more")}
        assert {
            "and 50 more checkpoints",
            f"and {300 - bounds.FLAGS_OF_PAGE // 200} more flags",
            f"and {150 - bounds.LISTED_OF_PAGE // 200} more commits",
            f"and {100 - bounds.LISTED_OF_PAGE // 200} more generations",
            f"and {len(many.groups) - bounds.GROUPS_OF_PAGE // 200} more layers",
            f"and {len(many.changed) - bounds.ROWS_OF_PAGE // 200} more changed tensors",
            "and 20 more notes",
        } <= more

    def test_too_much_of_one_checkpoint(self) -> None:
        one = sample().artifacts[0]
        many = replace(one, flags=one.flags * 50, groups=one.groups * 50, commits=one.commits * 50)
        more = {p.text for p in parsed(page(Review("a", "b", BASE, HEAD, 1, (many,)))).of("p")}
        assert {"and 200 more flags", "and 550 more layers", "and 100 more commits"} <= more

    @given(st.lists(st.integers(0, 3000), max_size=50), st.integers(0, 4000))
    def test_parts(self, wanted: list[int], most: int) -> None:
        given_ = bounds.parts(wanted, most)
        assert sum(given_) == min(sum(wanted), most)
        for got, asked in zip(given_, wanted, strict=True):
            assert min(asked, most // len(wanted)) <= got <= asked
