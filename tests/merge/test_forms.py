"""Which form a merge of texts has, whole or detached, where the sides have different ones."""

from __future__ import annotations

import random
import shutil
from itertools import product

import pytest

from tests.kit import Repo, safetensors, text_of
from tests.text.naive_detached import detached
from wtxtgit.merge.container import Merger
from wtxtgit.merge.policy import Policy
from wtxtgit.merge.texts import merge_texts
from wtxtgit.report.merge import MergeReport
from wtxtgit.store.place import store_of

CHANCE = random.Random(5)  # noqa: S311 - the same in every run
VALUES = [CHANCE.gauss(0, 1) for _ in range(24_000)]
NAMES = ("base", "ours", "theirs", "both")
WHOLE = {
    name: text_of(safetensors(first, *VALUES, last))
    for name, first, last in (
        ("base", 0.0, 0.0), ("ours", 1.0, 0.0), ("theirs", 0.0, 2.0), ("both", 1.0, 2.0),
    )
}  # fmt: skip
PARTS = {name: detached(text) for name, text in WHOLE.items()}


def stored(name: str, is_detached: bool) -> bytes:
    return PARTS[name][0] if is_detached else WHOLE[name]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """A repository whose store has the payload of all of them."""
    repo = Repo(tmp_path_factory.mktemp("repo"))
    repo.git("init", "-q")
    with store_of(repo.repository).writing() as writer:
        for _, payload in PARTS.values():
            for name, chunk in payload.items():
                writer.put(bytes.fromhex(name), memoryview(chunk), 4)
    return repo


def merge(
    repo: Repo, *contents: tuple[str, bool] | None, tracked: bool | None = None
) -> tuple[MergeReport, bytes]:
    texts = [memoryview(b"" if one is None else stored(*one)) for one in contents]
    base, ours, theirs = texts
    report, merged = merge_texts(
        base,
        ours,
        theirs,
        Merger(Policy()),
        repo=repo.repository,
        tracked=lambda: tracked,
        threads=1,
    )
    return report, bytes(merged)


def wanted_form(was: bool, ours: bool, theirs: bool, tracked: bool | None) -> bool:
    """As git merges a line of a file: a side that changed it wins."""
    if ours != theirs:
        return theirs if ours == was else ours
    return ours if tracked is None else tracked


FORMS = list(product((False, True), repeat=3))


@pytest.mark.parametrize("tracked", [None, False, True])
@pytest.mark.parametrize("forms", FORMS)
def test_values_and_form_are_merged(
    made: Repo, forms: tuple[bool, bool, bool], tracked: bool | None
) -> None:
    named = zip(("base", "ours", "theirs"), forms, strict=True)
    report, merged = merge(made, *named, tracked=tracked)
    assert report.ok
    assert merged == stored("both", wanted_form(*forms, tracked))


@pytest.mark.parametrize("changed", ["ours", "theirs"])
@pytest.mark.parametrize("forms", [one for one in FORMS if one[1] != one[2]])
def test_one_side_changed_values_and_the_other_the_form(
    made: Repo, forms: tuple[bool, bool, bool], changed: str
) -> None:
    names = ("base", "ours" if changed == "ours" else "base", "base")
    if changed == "theirs":
        names = ("base", "base", "theirs")
    report, merged = merge(made, *zip(names, forms, strict=True), tracked=None)
    assert report.ok
    assert merged == stored(changed, wanted_form(*forms, None))


@pytest.mark.parametrize("tracked", [False, True])
def test_both_added_it(made: Repo, tracked: bool) -> None:
    report, merged = merge(made, None, ("ours", True), ("ours", False), tracked=tracked)
    assert report.ok
    assert merged == stored("ours", tracked)


class TestWithoutPayload:
    @pytest.fixture
    def bare(self, made: Repo, repo: Repo) -> Repo:
        shutil.rmtree(repo.path / ".git/wtxt", ignore_errors=True)
        return repo

    def test_a_form_that_changed_is_no_change_of_values(self, bare: Repo) -> None:
        report, merged = merge(bare, ("base", False), ("base", True), ("theirs", False))
        assert (report.ok, report.taken) == (True, "theirs")
        assert merged == stored("theirs", True)
        # What the merge detached is in the store.
        names = set(map(bytes.fromhex, PARTS["theirs"][1]))
        assert store_of(bare.repository).has(names) == names

    def test_the_same_in_two_forms_is_taken_as_it_is(self, bare: Repo) -> None:
        for forms in ((True, False), (False, True)):
            for was in (False, True):
                sides = (("ours", form) for form in forms)
                report, merged = merge(bare, ("base", was), *sides)
                assert report.ok
                assert merged == stored("ours", not was)

    def test_a_side_without_payload_keeps_its_form(self, bare: Repo) -> None:
        """Ours switched to whole texts, theirs trained on: its values are elsewhere."""
        report, merged = merge(bare, ("base", True), ("base", False), ("theirs", True))
        assert (report.ok, report.taken) == (True, "theirs")
        assert merged == stored("theirs", True)

    def test_what_needs_values_is_a_conflict_that_says_what_helps(self, bare: Repo) -> None:
        report, merged = merge(bare, ("base", True), ("ours", False), ("theirs", True))
        assert not report.ok
        assert "wtxtgit fetch" in (report.conflicts[0].reason or "")
        assert merged == stored("ours", False)
