"""Attacks on an audit: commits made by hand, the ways they get in, and what is told of them."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.e2e.sealed import ROOT, Found, Sealed
from wtxtgit.report.audit import UNTRUSTED

WAYS = ("fast-forward", "merge", "squash")
"""How a branch gets into main: as it is, by a forge's merge commit, as one commit."""


def ways(telling: str) -> pytest.MarkDecorator:
    """Every way as the parameter `way`, all being slow but the one that tells most of an attack."""
    marks = {way: [] if way == telling else [pytest.mark.slow] for way in WAYS}
    return pytest.mark.parametrize("way", [pytest.param(w, marks=m) for w, m in marks.items()])


def commit_of(repo: Sealed, *parents: str, tree: str | None = None) -> str:
    """Commit a commit's tree, or the index, with any parents; no branch moves."""
    made = repo.git("write-tree") if tree is None else repo.git("rev-parse", f"{tree}^{{tree}}")
    named = [word for parent in parents for word in ("-p", parent)]
    return repo.git("commit-tree", *named, "-m", "c", made.decode().strip()).decode().strip()


def brought_in(repo: Sealed, way: str, evil: str, main: str) -> str:
    """The tip of a branch that was at `main` and got `evil`, which descends from it."""
    if way == "fast-forward":
        return evil
    return commit_of(repo, main, *([evil] if way == "merge" else []), tree=evil)


def assert_told(
    repo: Sealed, tip: str, *wanted: tuple[str, str], was: str, root: str | None = ROOT
) -> None:
    """An audit tells these (path, kind) of a tip, and nothing else of it.

    So it does by default, and by a range as a push has it. With all side
    commits it tells them as well, of the tip or where they came in.
    """
    for args in ((tip,), (f"{was}..{tip}", "--was", was)):
        said = repo.audit(*args, root=root)
        found = {finding for finding in said.found if finding.commit == tip}
        assert found == {Found(tip, *one) for one in wanted}, (args, found)
        assert said.code == code_of(said.kinds), args
    said = repo.audit("--every", f"{was}..{tip}", root=root)
    assert {(finding.path, finding.kind) for finding in said.found} >= set(wanted)
    assert said.code == code_of(said.kinds)


def code_of(kinds: Collection[str]) -> int:
    """The exit code of these kinds of findings."""
    return 1 if set(kinds) - UNTRUSTED else 4
