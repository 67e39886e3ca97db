"""What is shown controls nothing, and says what was there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.errors import escaped


def test_examples() -> None:
    assert escaped("a b/\u00e9.fold") == "a b/\u00e9.fold"
    assert escaped("\x1b[31m\n\x7f\x85") == "\\x1b[31m\\x0a\\x7f\\x85"
    assert escaped("\u202e\u2028\udcff") == "\\u202e\\u2028\\xff"


@given(st.text(st.characters()))
def test_any_text(text: str) -> None:
    shown = escaped(text)
    assert shown.isprintable()
    assert escaped(shown) == shown
    shown.encode("utf-8")
