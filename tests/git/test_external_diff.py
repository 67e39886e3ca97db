from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.errors import UsageError
from wtxtgit.git.external_diff import DiffFile, Pair, Unmerged, parse

A, B, NULL = b"a" * 40, b"b" * 64, b"0" * 40
OLD = (b"git-blob-x/m", A, b"100644")
NEW = (b"sub/m", B, b"100755")
ABSENT = (b"/dev/null", b".", b".")


def pair(*arguments: bytes) -> Pair:
    found = parse(arguments)
    assert isinstance(found, Pair)
    return found


def test_two_sides() -> None:
    assert pair(b"sub/m", *OLD, *NEW) == Pair(
        b"sub/m",
        DiffFile(Path("git-blob-x/m"), A.decode(), 0o100644),
        DiffFile(Path("sub/m"), B.decode(), 0o100755),
    )


def test_one_side() -> None:
    assert pair(b"m", *ABSENT, *NEW).old is None
    assert pair(b"m", *OLD, *ABSENT).new is None


def test_an_unmerged_path() -> None:
    assert parse([b"a b"]) == Unmerged(b"a b")


@pytest.mark.parametrize("word", ["rename", "copy"])
def test_a_rename_and_a_copy(word: str) -> None:
    header = f"similarity index 97%\n{word} from a\n{word} to b\nindex 1..2\n".encode()
    found = pair(b"a", *OLD, *NEW, b"b", header)
    assert (found.new_path, found.similarity) == (b"b", 97)
    assert found.relation == {"rename": "renamed", "copy": "copied"}[word]


@pytest.mark.parametrize("header", [(), (b"index 1..2\n",), (b"index 1..2\n", b"more")])
def test_two_names_that_were_asked_for(header: tuple[bytes, ...]) -> None:
    found = pair(b"a", *OLD, *NEW, b"b", *header)
    assert (found.new_path, found.relation, found.similarity) == (b"b", None, None)


def test_a_name_that_looks_like_a_header_is_none() -> None:
    header = b"similarity index 90%\nrename from x copy from y\nrename to similarity index 1%\n"
    found = pair(b"a", *OLD, *NEW, b"b", header)
    assert (found.relation, found.similarity) == ("renamed", 90)


def test_one_object_on_both_sides() -> None:
    assert pair(b"m", *OLD, b"x", A, b"100755").is_same
    assert not pair(b"m", *OLD, *NEW).is_same
    assert not pair(b"m", *OLD, *ABSENT).is_same


def test_two_files_of_the_work_tree_are_not_one_object() -> None:
    found = pair(b"m", b"x", NULL, b"100644", b"y", NULL, b"100644")
    assert found.old is not None
    assert found.old.oid is None
    assert not found.is_same


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (b"100644", "file"),
        (b"100755", "file"),
        (b"120000", "symbolic link"),
        (b"160000", "submodule"),
    ],
)
def test_what_a_mode_says(mode: bytes, kind: str) -> None:
    new = pair(b"m", *ABSENT, b"x", A, mode).new
    assert new is not None
    assert new.kind == kind


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (b"m", *OLD),
        (b"m", *OLD, *NEW[:2]),
        (b"m", *ABSENT, *ABSENT),
        (b"m", *OLD, b"x", b"a" * 39, b"100644"),
        (b"m", *OLD, b"x", A, b"0644"),
        (b"m", *OLD, b"x", A, b"."),
        (b"m", *OLD, b"x", A, b"100649"),
    ],
)
def test_what_git_does_not_say(arguments: tuple[bytes, ...]) -> None:
    with pytest.raises(UsageError):
        parse(arguments)


WORDS = st.sampled_from([A, NULL, b".", b"100644", b"/dev/null", b"\xff"]) | st.binary(max_size=12)


@given(st.lists(WORDS, max_size=10))
def test_nothing_else_escapes(arguments: list[bytes]) -> None:
    with suppress(UsageError):
        assert isinstance(parse(arguments), Pair | Unmerged)
