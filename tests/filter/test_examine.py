from __future__ import annotations

from dataclasses import replace

import pytest

from tests.data import fixture
from tests.e2e.conftest import MORE_PAIRS, PAIRS
from wtxtgit.filter.clean import text_of
from wtxtgit.filter.content import examine, written_facts
from wtxtgit.text.write import TextWriter

FILES = {
    name: fixture(pattern.replace("?", "1")) for name, pattern in {**PAIRS, **MORE_PAIRS}.items()
}
FILES |= {"empty": b"", "opaque": b"of no format", "zeros": bytes(1_000_000)}


def writer_of(content: bytes) -> TextWriter:
    writer = text_of(memoryview(content), threads=1).writer
    assert writer is not None
    return writer


@pytest.mark.parametrize("name", FILES)
def test_the_facts_of_what_clean_writes_need_no_reading(name: str) -> None:
    writer = writer_of(FILES[name])
    text = b"".join(writer.stream())
    found = examine(memoryview(text), threads=1)
    # Of the empty file clean stores no text.
    if name == "empty":
        found = replace(found, identity=("empty", "empty", True))
    assert written_facts(writer, memoryview(FILES[name])) == replace(found, is_canonical=True)
    assert found.is_canonical == (name != "empty")


def test_of_a_text_that_stands_for_a_file() -> None:
    """Clean writes it anew, whatever it was."""
    content = FILES["opaque"]
    text = b"".join(writer_of(content).stream())
    found = examine(memoryview(text), threads=1)
    assert written_facts(writer_of(text), memoryview(content)) == found


def test_hashes_are_made_where_they_were_not() -> None:
    one, other = memoryview(b"x"), memoryview(b"y")
    assert written_facts(writer_of(b"x"), one) == written_facts(writer_of(b"x"), one)
    assert written_facts(writer_of(b"x"), one) != written_facts(writer_of(b"y"), other)
