"""Gitattributes lines of an import, which an export takes back byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.rewrite.lines import ImportLines, exported, imported

LFS_LINE = b"*.bin filter=lfs diff=lfs merge=lfs -text"
PIECES = st.sampled_from(
    [
        *(LFS_LINE, LFS_LINE + b" lockable", b"  " + LFS_LINE, b'"a b" filter=lfs', b"*.txt text"),
        *(b"# filter=lfs", b"", b"*.wsum text eol=lf merge=wtxt-ledger", b"*.c -diff", b"\r"),
    ]
)
ENDINGS = st.sampled_from([b"\n", b"\r\n"])


@st.composite
def files(draw: st.DrawFn) -> bytes | None:
    if draw(st.booleans()) and draw(st.booleans()):
        return None
    ending = draw(ENDINGS)
    content = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + ending.join(
        draw(st.lists(PIECES, max_size=5))
    )
    return content + draw(st.sampled_from([b"", ending]))


@pytest.mark.parametrize("from_lfs", [False, True])
@pytest.mark.parametrize("patterns", [(), (b"*.bin",), (b"*.aero", b"a b")])
def test_an_export_gives_the_file_of_before(patterns: tuple[bytes, ...], from_lfs: bool) -> None:
    @given(files(), st.booleans(), st.booleans())
    def holds(content: bytes | None, detached: bool, at_top: bool) -> None:
        how = ImportLines(patterns, detached, from_lfs)
        made = imported(content, how, at_top=at_top)
        assert exported(made, to_lfs=from_lfs) == content

    holds()


def test_what_was_put_in_later_stays() -> None:
    how = ImportLines((b"*.bin",), False, False)
    made = imported(b"*.c -diff", how, at_top=True)
    assert made is not None
    assert b"*.bin filter=wtxt diff=wtxt merge=wtxt -text\n" in made
    assert exported(made + b"*.h -diff\n", to_lfs=False) == b"*.c -diff\n*.h -diff\n"


def test_indexes_of_sets_are_merged_by_the_driver() -> None:
    made = imported(None, ImportLines((b"*.aero",), False, False), at_top=True)
    assert made is not None
    assert b"\n*.aeroset.json merge=wtxt\n" in made
    assert exported(made, to_lfs=False) is None


def test_lines_of_track_go_and_with_them_what_they_brought() -> None:
    content = b"*.a filter=wtxt diff=wtxt merge=wtxt -text\n*.wtxt text eol=lf diff=wtxt\n"
    assert exported(content, to_lfs=False) is None
    assert exported(content, to_lfs=True) == b"*.a filter=lfs diff=lfs merge=lfs -text\n"
