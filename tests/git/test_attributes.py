from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.kit import ATTRIBUTES, Repo
from wtxtgit.errors import UsageError, WtxtgitError
from wtxtgit.git import attributes
from wtxtgit.git.attributes import Line

SAMPLE = (
    b"# models\n"
    b"\n"
    b"*.fold filter=wtxt -text\n"
    b'"a b.fold"\tfilter=wtxt\n'
    b"[attr]model filter=wtxt -text\n"
    b'  "t\\ta\\"\\\\\\101.x" text  eol=lf \n'
    b'"broken text\n'
    b"*.last -text"
)


def test_lines() -> None:
    lines = list(attributes.parse(SAMPLE))
    assert attributes.content(lines) == SAMPLE
    assert [(line.pattern, line.attributes) for line in lines if line.pattern is not None] == [
        (b"*.fold", (b"filter=wtxt", b"-text")),
        (b"a b.fold", (b"filter=wtxt",)),
        (b't\ta"\\A.x', (b"text", b"eol=lf")),
        (b"*.last", (b"-text",)),
    ]


@given(st.binary(max_size=300))
@example(b"\x0b")
def test_parsing_loses_no_byte(content: bytes) -> None:
    assert attributes.content(attributes.parse(content)) == content


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_that_git_ignores_has_no_pattern(repo: Repo, end: bytes) -> None:
    for size, obeyed in ((2047, True), (2048, False)):
        line = b"*.x filter=wtxt ".ljust(size, b"a") + end
        (found,) = attributes.parse(line)
        assert found == (line, b"*.x" if obeyed else None, found.attributes)
        assert (b"filter=wtxt" in found.attributes) == obeyed
        repo.write(".gitattributes", line)
        said = repo.repository.attributes([b"a.x"], ("filter",))
        assert (said[b"a.x"]["filter"] == b"wtxt") == obeyed


def test_append_keeps_line_endings() -> None:
    added = attributes.append(b"# a\r\n*.x -text\r\nlast", [(b"*.fold", (b"-text",))])
    assert added == b"# a\r\n*.x -text\r\nlast\r\n*.fold -text\r\n"
    assert attributes.append(b"", [(b"a b", (b"x",)), (b"c", (b"y",))]) == b'"a b" x\nc y\n'
    assert attributes.append(b"last", []) == b"last"


def test_other_attributes_keep_the_ending() -> None:
    (line,) = attributes.parse(b"*.x  a  b\r\n")
    assert attributes.with_attributes(line, (b"c",)) == Line(b"*.x c\r\n", b"*.x", (b"c",))


@pytest.mark.parametrize("pattern", [b"", b"!*.fold", b"models/", b"a\0b", b"x" * 2048])
def test_patterns_that_git_would_not_obey(pattern: bytes) -> None:
    with pytest.raises(UsageError):
        attributes.format_line(pattern, (b"-text",))


@given(st.binary(min_size=1, max_size=20))
def test_a_pattern_is_read_back(pattern: bytes) -> None:
    try:
        line = attributes.format_line(pattern, (b"-text",))
    except WtxtgitError:
        return
    assert list(attributes.parse(line.raw)) == [line]


@pytest.mark.parametrize(
    "name",
    [b"plain.fold", b"with space.fold", b'q"uote.fold', b"tab\t.fold", b"new\nline.fold",
     b"#hash.fold", b"[attr]x.fold", b"\xff\xfe.fold", b"\x1b[31m.fold", b"\x7f.fold",
     "modèle.fold".encode(), b"-dash.fold", b" .fold", b"cr\r.fold"],
)  # fmt: skip
def test_git_matches_the_name_that_was_quoted(repo: Repo, name: bytes) -> None:
    # Brackets are a class in a pattern: the literal name needs an escape.
    pattern = name.replace(b"[", b"\\[")
    line = attributes.format_line(pattern, (b"filter=wtxt",))
    repo.write(".gitattributes", line.raw)
    found = repo.repository.attributes([name, b"other"], ("filter",))
    assert found[name]["filter"] == b"wtxt"
    assert found[b"other"]["filter"] == b"unspecified"


def test_effective_attributes_of_the_index_and_of_the_work_tree(repo: Repo) -> None:
    repo.write(".gitattributes", f"*.fold {ATTRIBUTES}\n")
    repo.add()
    repo.write(".gitattributes", "")
    paths = [b"x.fold"]
    repository = repo.repository
    assert repository.attributes(paths, ("text",))[b"x.fold"]["text"] == b"unspecified"
    cached = repository.attributes(paths, ("text", "filter"), from_index=True)
    assert cached == {b"x.fold": {"text": b"unset", "filter": b"wtxt"}}
    assert repository.attributes([], ("text",)) == {}
