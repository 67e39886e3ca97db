"""Words of a repository in Markdown: nothing in them is structure, or becomes a link."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from wtxtgit.errors import escaped
from wtxtgit.report.markdown import code, table, text

BREAK = "\u200b"
LIVE = re.compile(r"(?i)@[a-z0-9]|#[0-9]|(?<![a-z0-9])gh-[0-9]|www\.|[a-z]://")
"""What GitHub makes links of, in text that is rendered: those of ours are broken."""
WORDS = [
    "@octocat", "@org/team", "#1", "org/repo#2", "GH-1", "gh-23", "a@example.com",
    "https://example.com/x", "http://example.com", "ftp://example.com", "HTTPS://EXAMPLE.COM",
    "www.example.com", "WWW.example.com", "mailto:a@example.com", "xmpp:a@example.com/b",
    "fixes #1, closes GH-2: @a@b#3", "@@a", "##1", "_GH-1", "git@github.com:o/r.git", "user/r@1a2b",
]  # fmt: skip


def rendered(markdown: str) -> str:
    """Text as a page has it, with addresses made links as GitHub does."""
    html = MarkdownIt("commonmark", {"html": True}).render(markdown)
    return unescape(re.sub(r"</?(?:p|code)>", "", html)).removesuffix("\n")


@pytest.mark.parametrize("word", WORDS)
def test_such_words_are_live_of_themselves(word: str) -> None:
    assert LIVE.search(rendered(word.replace("_", r"\_")))


@pytest.mark.parametrize("spell", [text, code])
@pytest.mark.parametrize("word", WORDS)
def test_nothing_is_live(word: str, spell: Callable[[str], str]) -> None:
    found = rendered(spell(word))
    assert not re.search(r"[@#]\w", found)
    assert not LIVE.search(found)
    assert found.replace(BREAK, "") == word


@given(st.text(alphabet=st.sampled_from("@#GHghw.:/-1ax<&*`_|\\ \n\u200b")))
def test_any_words(words: str) -> None:
    # Blanks at the ends of a paragraph and runs of them are no matter of ours.
    found = rendered(f"x{text(words)}x")
    assert found.replace(BREAK, "") == f"x{escaped(words)}x"
    assert not LIVE.search(found)


@given(st.text(alphabet=st.sampled_from("-+=>#*_~`|1.)[]!: x\\<&$\t"), min_size=1))
def test_words_that_begin_a_line(words: str) -> None:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    html = parser.render(f"- {text(words)}\n- last\n")
    shown = unescape(html.removeprefix("<ul>\n<li>").removesuffix("</li>\n<li>last</li>\n</ul>\n"))
    # Blanks at the end of a paragraph, and how a hard break is spelled, are no matter of ours.
    assert shown.replace(BREAK, "").rstrip(" ") == escaped(words).rstrip(" ")


@given(st.text(alphabet=st.sampled_from("|\\`*_<&$# ax1."), min_size=1))
def test_words_in_a_table(words: str) -> None:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    html = parser.render("\n".join(table(["a", "b"], [[code(words), text(words)]])))
    cells = [unescape(cell).replace(BREAK, "") for cell in re.findall(r"<td>(.*?)</td>", html)]
    of_code, of_text = (re.sub(r"^<code>|</code>$", "", cell) for cell in cells)
    assert of_code.strip(" ") == of_text.strip(" ") == escaped(words).strip(" ")


@pytest.mark.parametrize(
    "words",
    [
        "generation 2 of layers",
        "64 items of 4,096 became NaN",
        "f32 -> f16, 12.5% (was 3.1%)",
        "layers.0.self_attn.q_proj: a; b = c? d!",
        "a: b, high-1, awww, //x",
    ],
)
def test_what_is_ordinary_reads_as_it_is(words: str) -> None:
    assert text(words) == words
    assert rendered(words) == words
    assert code(words) == f"`{words}`"
