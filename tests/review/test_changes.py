"""Which checkpoints differ, and which one came from which."""

from __future__ import annotations

import os

import pytest

from tests.git.histories import Files, History
from tests.kit import Repo, text_of
from tests.review.repos import MODEL, file, put, reviewed, started, weights
from wtxtgit.report.review import Fate, Review

pytestmark = pytest.mark.slow

STRANGE = (
    b"a b.safetensors",
    b"-o.safetensors",
    b":(top)x.safetensors",
    b"*.safetensors",
    b'line\nfeed\t".safetensors',
    b"no utf-8 \xff.safetensors",
    "\u00e9/\u202e.safetensors".encode(),
    b"HEAD:x.safetensors",
)


def fates(repo: Repo, asked: str = "main...topic") -> list[tuple[bytes, Fate, bytes | None]]:
    found = [(one.path, one.fate, one.base_path) for one in reviewed(repo, asked).artifacts]
    return sorted(found)


def test_nothing(repo: Repo) -> None:
    started(repo)
    repo.write("README.md", "text")
    repo.add()
    repo.commit()
    assert fates(repo) == []


def test_added_changed_removed(repo: Repo) -> None:
    started(repo)
    put(repo, {"w": weights()["head"]}, "gone.safetensors")
    repo.commit()
    repo.git("branch", "-f", "main")
    repo.git("rm", "-q", "gone.safetensors")
    put(repo, weights(layers=2))
    put(repo, {"v": weights()["head"] * 2}, "sub/new.safetensors")
    repo.commit()
    assert fates(repo) == [
        (b"gone.safetensors", Fate.REMOVED, b"gone.safetensors"),
        (b"model.safetensors", Fate.CHANGED, b"model.safetensors"),
        (b"sub/new.safetensors", Fate.ADDED, None),
    ]


@pytest.mark.parametrize("is_changed", [False, True])
def test_renamed(is_changed: bool, repo: Repo) -> None:
    started(repo)
    repo.git("mv", MODEL, "moved.safetensors")
    if is_changed:
        put(repo, weights(head=weights()["head"] * 2), "moved.safetensors")
    repo.commit()
    assert fates(repo) == [(b"moved.safetensors", Fate.RENAMED, b"model.safetensors")]
    (one,) = reviewed(repo).artifacts
    assert len(one.changed) == is_changed


def test_what_is_nothing_like_it_is_not_renamed(repo: Repo) -> None:
    started(repo)
    repo.git("rm", "-q", MODEL)
    put(repo, {"v": weights()["head"] * 3}, "other.safetensors")
    repo.commit()
    assert [fate for _, fate, _ in fates(repo)] == [Fate.REMOVED, Fate.ADDED]


def test_what_the_base_did_since_is_not_the_branchs(repo: Repo) -> None:
    started(repo)
    put(repo, weights(layers=2), "mine.safetensors")
    repo.commit()
    repo.git("checkout", "-q", "main")
    put(repo, {"v": weights()["head"] * 3}, "theirs.safetensors")
    repo.commit()
    assert fates(repo) == [(b"mine.safetensors", Fate.ADDED, None)]
    assert {path for path, _, _ in fates(repo, "main..topic")} == {
        b"mine.safetensors", b"theirs.safetensors",
    }  # fmt: skip


def test_native_texts(repo: Repo) -> None:
    started(repo)
    repo.write("w.wtxt", text_of(b"whatever"))
    repo.add()
    repo.commit()
    assert fates(repo) == [(b"w.wtxt", Fate.ADDED, None)]


def test_a_filter_that_came_or_went(repo: Repo) -> None:
    started(repo)
    repo.write(".gitattributes", "")
    repo.add()
    repo.commit()
    assert fates(repo) == [(b"model.safetensors", Fate.CHANGED, b"model.safetensors")]


def test_strange_names(repo: Repo) -> None:
    started(repo)
    for n, name in enumerate(STRANGE):
        put(repo, {f"w{n}": weights()["head"] + n}, os.fsdecode(name))
    repo.git("mv", MODEL, b"moved \xfe.safetensors")
    repo.commit("strange")
    found = reviewed(repo)
    assert {one.path for one in found.artifacts} == {*STRANGE, b"moved \xfe.safetensors"}
    assert all(one.diff is not None and len(one.commits) == 1 for one in found.artifacts)
    assert all(one.sizes.text_after for one in found.artifacts)


class TestPathsWithoutEnd:
    """What git can't be started with ends no review."""

    def both(self, repo: Repo, before: Files, after: Files) -> Review:
        make = History(repo)
        attributes = {b".gitattributes": b"* filter=wtxt\n"}
        base = make.commit({**attributes, **before})
        head = make.commit({**attributes, **after}, [base])
        return reviewed(repo, f"{base}...{head}")

    def test_a_path_longer_than_an_argument(self, repo: Repo) -> None:
        long = b"x" * 200_000
        content = [text_of(file({"w": weights()["head"] * n})) for n in (1, 2)]
        ledger = {long + b".wsum": b"no ledger"}
        found = self.both(repo, {long: content[0], **ledger}, {long: content[1], **ledger})
        (one,) = found.artifacts
        assert (one.path, one.fate, len(one.changed)) == (long, Fate.CHANGED, 1)
        assert len(one.commits) == 1
        found = self.both(repo, {b"a": content[0]}, {long: content[0]})
        assert {one.fate for one in found.artifacts} == {Fate.ADDED, Fate.REMOVED}
        (note,) = [note for note in found.notes if "renames" in note]
        assert note.endswith(
            "not searched for renames by content: 2 files added or removed, with paths too long"
        )

    def test_paths_longer_than_all_arguments(self, repo: Repo) -> None:
        gone, come = (
            {b"%b-%03d-" % (kind, n) + b"y" * 4300: b"no text" for n in range(249)}
            for kind in (b"gone", b"come")
        )
        found = self.both(repo, gone, come)
        assert [one.fate for one in found.artifacts].count(Fate.ADDED) == 249
        assert len(found.artifacts) == 498
        assert any(
            "498 files added or removed, with paths too long" in note for note in found.notes
        )

    def test_too_many_files(self, repo: Repo) -> None:
        gone, come = ({b"%b%d" % (kind, n): b"x" for n in range(251)} for kind in (b"g", b"c"))
        notes = self.both(repo, gone, come).notes
        assert "not searched for renames by content: 502 files added or removed" in notes
