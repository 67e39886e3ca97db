"""Attributes that a branch changes: of merges and diffs, of what is tracked."""

from __future__ import annotations

import pytest

from tests.git.histories import History
from tests.kit import Repo
from tests.review.repos import reviewed
from wtxtgit.report.review import Risk
from wtxtgit.review.changes import MOST_NOTES

pytestmark = pytest.mark.slow

TRACKED = b"*.npz filter=wtxt diff=wtxt merge=wtxt -text\n"
FILES = {b"a.npz": b"1", b"sub/b.npz": b"2", b"other": b"3"}


def notes(repo: Repo, before: bytes, after: bytes, **files: bytes) -> list[str]:
    make = History(repo)
    base = make.commit({b".gitattributes": before, **FILES})
    new = {name.encode(): content for name, content in files.items()}
    head = make.commit({b".gitattributes": after, **FILES, **new}, [base])
    found = reviewed(repo, f"{base}..{head}")
    return [note for note in found.notes if "attribute" in note]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"*.npz wtxt-merge=theirs\n", "wtxt-merge: unspecified -> theirs"),
        (b"*.npz merge=union\n", "merge: wtxt -> union"),
        (b"*.npz !merge\n", "merge: wtxt -> unspecified"),
        (b"*.npz -merge\n", "merge: wtxt -> unset"),
        (b"* -diff\n", "diff: wtxt -> unset"),
    ],
)
def test_of_what_is_tracked(repo: Repo, line: bytes, told: str) -> None:
    assert notes(repo, TRACKED, TRACKED + line) == [
        f"attribute {told}, of a.npz and 1 more checkpoint"
    ]


def test_of_one_checkpoint(repo: Repo) -> None:
    found = notes(repo, TRACKED, TRACKED + b"sub/* wtxt-merge=ours\n")
    assert found == ["attribute wtxt-merge: unspecified -> ours, of sub/b.npz"]


@pytest.mark.parametrize(
    "after",
    [TRACKED, TRACKED + b"# a comment\n", TRACKED + b"other merge=union\n", b"", TRACKED * 2],
)
def test_of_nothing_that_is_tracked(repo: Repo, after: bytes) -> None:
    assert notes(repo, TRACKED, after) == []


def test_what_is_tracked_first(repo: Repo) -> None:
    assert notes(repo, b"", TRACKED) == []
    told = "attribute wtxt-merge: unspecified -> theirs, of a.npz and 1 more checkpoint"
    assert notes(repo, b"", TRACKED + b"*.npz wtxt-merge=theirs\n") == [told]


def test_what_is_new_under_lines_of_the_base(repo: Repo) -> None:
    own = TRACKED + b"*.npz wtxt-merge=average\n"
    assert notes(repo, own, own + b"# more\n", c_npz=b"4") == []


def test_hostile_values_are_bounded(repo: Repo) -> None:
    lines = b"".join(b"%d.npz wtxt-merge=\x1b[31m%d%b\n" % (n, n, b"x" * 900) for n in range(99))
    make = History(repo)
    files = {b"%d.npz" % n: b"" for n in range(99)}
    base = make.commit({b".gitattributes": TRACKED, **files})
    head = make.commit({b".gitattributes": TRACKED + lines, **files}, [base])
    found = [note for note in reviewed(repo, f"{base}..{head}").notes if "attribute" in note]
    assert len(found) == MOST_NOTES + 1
    assert found[-1] == f"and {99 - MOST_NOTES} more changes of attributes"
    assert max(map(len, found)) < 300


@pytest.mark.parametrize(
    "line",
    [
        b"*.npz text eol=crlf\n",
        b"a.npz working-tree-encoding=UTF-16\n",
        b"*.npz ident\n",
        b"A.NPZ text\n",
    ],
)
def test_what_makes_a_checkout_write_other_bytes_is_a_risk(repo: Repo, line: bytes) -> None:
    make = History(repo)
    base = make.commit({b".gitattributes": TRACKED, **FILES})
    head = make.commit({b".gitattributes": TRACKED + line, **FILES}, [base])
    found = reviewed(repo, f"{base}..{head}").artifacts
    assert [one.path for one in found] == [b"a.npz", b"sub/b.npz"][: 2 if b"*" in line else 1]
    for one in found:
        assert [flag.risk for flag in one.flags if "altered-checkout" in flag.message] == [
            Risk.CHAIN
        ]
    # Whoever comes after that is not told again.
    later = make.commit({b".gitattributes": TRACKED + line + b"# x\n", **FILES}, [head])
    assert not reviewed(repo, f"{head}..{later}").artifacts
