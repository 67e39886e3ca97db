from __future__ import annotations

import pytest

from tests.git.histories import History
from tests.kit import Repo
from wtxtgit.chain import push
from wtxtgit.chain.push import Ref
from wtxtgit.errors import UsageError

ZERO = "0" * 40
ONE, TWO = "1" * 40, "2" * 40


def test_lines_of_git() -> None:
    lines = f"refs/heads/a {ONE} refs/heads/b {TWO}\n(delete) {ZERO} refs/heads/c {ONE}\n\n"
    assert push.parse(lines.encode()) == [
        Ref("refs/heads/a", ONE, "refs/heads/b", TWO),
        Ref("(delete)", None, "refs/heads/c", ONE),
    ]
    assert push.parse(b"\n") == []


@pytest.mark.parametrize(
    "line", [b"a", b"a b c d", f"a {ONE} b".encode(), f"a {ONE} b {TWO} e".encode(), b"\xff"]
)
def test_other_lines(line: bytes) -> None:
    with pytest.raises(UsageError, match="not a line that git passes"):
        push.parse(line)


def audited(repo: Repo, *refs: Ref) -> list[str]:
    """The local names of the refs that are audited."""
    found = push.audit_push(
        repo.repository, refs, lambda: push.tracked_tips(repo.repository, None), None, lambda: 1
    )
    return [one.ref.local for one in found]


def test_which_refs_are_audited(repo: Repo) -> None:
    made = History(repo)
    plain = made.commit({b"a": b"1"})
    tracked = made.commit({b"a": b"1", b".gitattributes": b"*.x filter=wtxt\n"}, [plain])
    gone = made.commit({b"a": b"1"}, [tracked])
    absent = "3" * 40
    assert audited(repo, Ref("plain", plain, "b", None)) == []
    assert audited(repo, Ref("tracked", tracked, "b", None)) == ["tracked"]
    assert audited(repo, Ref("gone", gone, "b", tracked)) == ["gone"]
    assert audited(repo, Ref("gone", gone, "b", None)) == ["gone"], "it was there between"
    assert audited(repo, Ref("same", tracked, "b", tracked)) == []
    assert audited(repo, Ref("unknown there", tracked, "b", absent)) == ["unknown there"]
    assert audited(repo, Ref("deleted", None, "b", tracked)) == []
    assert audited(repo, *[Ref(name, tracked, name, None) for name in "ab"]) == ["a"]
    repo.git("update-ref", "refs/remotes/origin/main", tracked)
    assert audited(repo, Ref("known there", tracked, "b", None)) == []
    assert audited(repo, Ref("goes on", gone, "b", None)) == ["goes on"]
