"""`wtxtgit store prune`: what goes here and at a remote, and what never does."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.test_detached import ATTRIBUTES, NAME
from tests.e2e.test_payload_remotes import cloned
from tests.kit import Repo
from tests.kit.templates import Templates
from tests.store.chunks import damage
from tests.store.forged import forge_end
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload.detached_texts import of_commits, of_tree
from wtxtgit.remotes.payload.place import TargetPacks
from wtxtgit.remotes.payload.prune import DAY, PruneRules, prune_payload
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.remotes.payload.remote_prune import prune_remote
from wtxtgit.report.store import RemotePruned, StorePruned
from wtxtgit.store.place import store_of

pytestmark = pytest.mark.slow

OLD = {"GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
CHUNKS = 3
"""Chunks of a version, none of which is like one of another version."""


def model(seed: int) -> bytes:
    values = np.random.default_rng(seed).bytes(160_000)
    about = {"dtype": "U8", "shape": [len(values)], "data_offsets": [0, len(values)]}
    header = json.dumps({"w": about}).encode()
    return struct.pack("<Q", len(header)) + header + values


def version(repo: Repo, seed: int, **dates: str) -> None:
    """A commit of long ago, or of now where the dates are other ones."""
    repo.write(NAME, model(seed))
    repo.git("add", ".")
    repo.git("commit", "-qm", str(seed), env=dates or OLD)


def _make(folder: Path) -> None:
    repo = Repo(folder / "repo")
    run.git("init", "-q", "--initial-branch=main", str(repo.path))
    run.git("init", "-q", "--bare", "--initial-branch=main", str(folder / "bare.git"))
    repo.git("remote", "add", "origin", "../bare.git")
    repo.write(".gitattributes", ATTRIBUTES)
    for seed in range(3):
        version(repo, seed)
    repo.git("push", "-q", "origin", "main")
    push_payload(
        store_of(Repository.discover(repo.path)),
        TargetPacks(Folder(folder / "there")),
        list(of_commits(Repository.discover(repo.path), ["HEAD"])),
    )


@pytest.fixture
def own(templates: Templates, driver: None, tmp_path: Path) -> Repo:
    """Three versions of long ago, that a git remote has, and their payload in a folder."""
    top = templates.copy("pruned", _make, tmp_path / "all")
    use_folder(repo := Repo(top / "repo"), top / "there")
    return repo


def use_folder(repo: Repo, folder: Path) -> None:
    with (repo.path / ".git/config").open("a") as config:
        config.write(f'[wtxtgit]\n\tstore = "{folder.as_uri()}"\n')


@pytest.fixture
def bare(own: Repo) -> Path:
    return own.path.parent / "bare.git"


@pytest.fixture
def there(own: Repo) -> Path:
    return own.path.parent / "there"


def forget(repo: Repo, *branches: str) -> None:
    """Be at main, and have nothing here lead to branches any more."""
    repo.git("checkout", "-q", "main")
    repo.git("branch", "-qD", *branches)
    repo.git("reflog", "expire", "--expire=now", "--all")


def pruned(
    repo: Repo,
    recent: int = 10,
    expire: int | None = 14,
    *,
    verify: bool = False,
    dry: bool = False,
) -> StorePruned:
    now = time.time()
    rules = PruneRules(now - recent * DAY, None if expire is None else now - expire * DAY, verify)
    return prune_payload(Repository.discover(repo.path), rules, dry_run=dry)


def has(repo: Repo, *revisions: str) -> list[bool]:
    """Of which commits all payload is at hand."""
    here = Repository.discover(repo.path)
    store = store_of(here)
    texts = [text for revision in revisions for text in of_tree(here, revision, ())]
    assert len(texts) == len(revisions)
    return [len(store.has(text.chunks)) == len(set(text.chunks)) for text in texts]


def make_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.suffix in (".pack", ".index", ".unneeded", ".gone"):
            os.utime(path, (1_500_000_000, 1_500_000_000))


class TestHere:
    def test_old_versions_go_and_come_again(self, own: Repo) -> None:
        told = own.wtxtgit("store", "prune", "--dry-run", "--json")
        assert has(own, "main", "main~1", "main~2") == [True, True, True]
        done = own.wtxtgit("store", "prune", "--json")
        would, did = json.loads(told.stdout), json.loads(done.stdout)
        assert would["chunks"] == did["chunks"] == 2 * CHUNKS
        assert 0 < did["bytes"] <= did["size_before"] - did["size_after"]
        assert has(own, "main", "main~1", "main~2") == [True, False, False]
        own.git("checkout", "-q", "main~1")
        own.wtxtgit("fetch")
        assert own.path.joinpath(NAME).read_bytes() == model(1)

    def test_what_the_remote_has_not_stays(self, own: Repo, there: Path) -> None:
        old = sorted(there.glob("*.pack"))
        for path in old:
            path.write_bytes(path.read_bytes()[:-1])
        done = pruned(own)
        assert (done.chunks, done.unsent) == (0, 2 * CHUNKS)
        for path in old:
            path.unlink()
        assert pruned(own).chunks == 0
        own.wtxtgit("push")
        assert pruned(own).chunks == 2 * CHUNKS

    def test_a_remote_that_is_not_what_it_says(self, own: Repo, there: Path) -> None:
        assert pruned(own, verify=True, dry=True).chunks == 2 * CHUNKS
        for pack in there.glob("*.pack"):
            damage(pack, 40)
        done = pruned(own, verify=True)
        assert (done.chunks, done.unsent) == (0, 2 * CHUNKS)

    def test_a_remote_that_the_tree_alone_names_is_not_believed(self, own: Repo) -> None:
        own.git("config", "--unset", "wtxtgit.store")
        own.write(".wtxt/store", "[store]\n\turl = s3://bucket/store\n")
        for more in ((), ("--remote",)):
            done = own.wtxtgit("store", "prune", *more, ok=(2,))
            assert b"wtxtgit store use s3://bucket/store" in done.stderr
        assert all(has(own, "main", "main~1", "main~2"))

    def test_what_is_not_pushed_or_recent_stays(self, own: Repo) -> None:
        now = {"GIT_AUTHOR_NAME": "A"}
        version(own, 5)
        version(own, 6, **now)
        version(own, 7)
        own.wtxtgit("push")
        pruned(own)
        assert has(own, *(f"main~{back}" for back in range(5))) == [*[True] * 3, False, False]
        own.git("push", "-q", "origin", "main")
        own.git("config", "wtxtgit.pruneRecent", "3")
        own.wtxtgit("store", "prune")
        assert has(own, "main", "main~1", "main~2") == [True, True, False]
        pruned(own, recent=0)
        assert has(own, "main", "main~1") == [True, False]

    def test_what_work_trees_are_at_or_busy_with_stays(self, own: Repo, tmp_path: Path) -> None:
        own.git("worktree", "add", "-q", "--detach", str(tmp_path / "wt"), "main~1")
        other = Repo(tmp_path / "wt")
        merged = other.path.parent / "all/repo/.git/worktrees/wt/MERGE_HEAD"
        merged.write_bytes(own.git("rev-parse", "main~2"))
        assert pruned(own).chunks == 0
        merged.unlink()
        # The index alone has the last one.
        other.git("checkout", "-q", "main~2", "--", NAME)
        assert pruned(own).chunks == 0
        other.git("reset", "-q", "--hard")
        pruned(own)
        assert has(own, "main", "main~1", "main~2") == [True, True, False]

    def test_stashes_stay(self, own: Repo) -> None:
        own.write(NAME, model(11))
        own.git("stash", "-q", env=OLD)
        own.write(NAME, model(12))
        own.git("stash", "-q", env=OLD)
        own.wtxtgit("push", "origin", "stash@{0}", "stash@{1}")
        own.git("config", "wtxtgit.store", "git+origin")
        pruned(own, expire=0)
        assert has(own, "main", "stash@{0}", "stash@{1}") == [True] * 3

    def test_what_nothing_leads_to_goes_when_it_is_old(self, own: Repo) -> None:
        self.add_and_forget(own, 12)
        young = pruned(own)
        assert (young.chunks, young.young) == (2 * CHUNKS, CHUNKS)
        make_old(own.path / ".git/wtxt/store")
        assert pruned(own, expire=None).young == CHUNKS
        own.git("config", "gc.pruneExpire", "never")
        kept = own.wtxtgit("store", "prune")
        assert f"{CHUNKS} chunks that nothing refers to".encode() in kept.stdout
        own.git("config", "gc.pruneExpire", "1.week.ago")
        assert f"{CHUNKS} chunks, ".encode() in own.wtxtgit("store", "prune").stdout
        assert pruned(own, expire=0).chunks == 0

    def add_and_forget(self, repo: Repo, seed: int) -> None:
        repo.write(NAME, model(seed))
        repo.git("add", ".")
        repo.git("reset", "-q", "--hard")

    def test_reflogs_lead_to_what_no_remote_has(self, own: Repo) -> None:
        version(own, 13)
        own.git("reset", "-q", "--hard", "HEAD~1")
        make_old(own.path / ".git/wtxt/store")
        # What was left a moment ago is not old yet.
        (own.path / ".git/ORIG_HEAD").unlink()
        done = pruned(own)
        assert (done.chunks, done.unsent) == (2 * CHUNKS, 0)
        assert has(own, "main@{1}") == [True]

    def test_refs_that_the_remote_had_once_prove_nothing(self, own: Repo, bare: Path) -> None:
        own.git("checkout", "-q", "-b", "side", "main~2")
        version(own, 21)
        own.wtxtgit("push")
        own.git("push", "-q", "origin", "side")
        own.git("checkout", "-q", "main")
        run.git("update-ref", "-d", "refs/heads/side", cwd=bare)
        assert own.git("rev-parse", "origin/side") == own.git("rev-parse", "side")
        pruned(own)
        assert has(own, "main", "side", "main~1") == [True, True, False]
        # Nor does a branch that is deleted here, too, as long as anything here leads there.
        own.git("update-ref", "refs/kept/side", "side")
        own.git("branch", "-qD", "side")
        pruned(own, expire=0)
        assert has(own, "refs/kept/side") == [True]

    def test_nothing_goes_where_the_remote_does_not_answer(self, own: Repo, bare: Path) -> None:
        bare.rename(bare.with_name("elsewhere"))
        done = own.wtxtgit("store", "prune", ok=(5,))
        assert b"nothing is dropped: " in done.stderr
        assert all(has(own, "main", "main~1", "main~2"))

    def test_what_a_local_prune_relied_on_stays_at_the_remote(
        self, own: Repo, there: Path, bare: Path
    ) -> None:
        pruned(own)
        other = cloned(bare, "other", there.parent)
        use_folder(other, there)
        make_old(there)
        other.wtxtgit("store", "prune", "--remote", "--force", "--expire", "0")
        own.git("checkout", "-q", "main~2")
        assert own.path.joinpath(NAME).read_bytes() == model(0)

    def test_without_any_remote_garbage_alone_goes(self, own: Repo) -> None:
        self.add_and_forget(own, 14)
        make_old(own.path / ".git/wtxt/store")
        own.git("config", "--unset", "wtxtgit.store")
        own.git("remote", "remove", "origin")
        done = pruned(own)
        assert (done.remote, done.chunks) == (None, CHUNKS)
        assert all(has(own, "main", "main~1", "main~2"))

    def test_a_store_elsewhere_may_be_of_others(self, own: Repo, tmp_path: Path) -> None:
        own.git("config", "wtxtgit.storePath", str(tmp_path / "store"))
        self.add_and_forget(own, 15)
        make_old(tmp_path / "store")
        kept = own.wtxtgit("store", "prune")
        assert f"{CHUNKS} chunks that nothing refers to".encode() in kept.stdout
        gone = own.wtxtgit("store", "prune", "--expire", "1")
        assert f"{CHUNKS} chunks, ".encode() in gone.stdout

    def test_precious_objects(self, own: Repo) -> None:
        own.git("config", "core.repositoryFormatVersion", "1")
        own.git("config", "extensions.preciousObjects", "true")
        assert b"precious" in own.wtxtgit("store", "prune", ok=(5,)).stderr

    def test_a_shallow_clone_keeps_what_it_does_not_know(self, own: Repo, bare: Path) -> None:
        other = own.path.parent / "other"
        run.git("clone", "-q", "--depth=1", bare.as_uri(), str(other))
        shutil.copytree(own.path / ".git/wtxt/store", other / ".git/wtxt/store")
        make_old(other / ".git/wtxt/store")
        done = pruned(Repo(other))
        assert (done.chunks, done.young) == (0, 2 * CHUNKS)


def at_remote(repo: Repo, expire: int = 14, *, force: bool = False) -> RemotePruned:
    now = time.time()
    limit = now - expire * DAY
    return prune_remote(Repository.discover(repo.path), now, limit, force=force)


class TestAtARemote:
    @pytest.fixture
    def side(self, own: Repo, there: Path) -> Repo:
        """A branch of its own is at the remotes, and nowhere here."""
        own.git("checkout", "-q", "-b", "side", "main~2")
        version(own, 20)
        own.wtxtgit("push")
        own.git("push", "-q", "origin", "side")
        forget(own, "side")
        own.git("update-ref", "-d", "refs/remotes/origin/side")
        own.git("prune", "--expire=now")
        return own

    def test_what_no_ref_needs_goes(self, side: Repo, bare: Path, there: Path) -> None:
        packs = {*there.glob("*.pack")}
        make_old(there)
        # Another one's branch, of which nothing is here.
        assert at_remote(side).gone == ()
        run.git("update-ref", "refs/pull/1/head", "refs/heads/side", cwd=bare)
        run.git("update-ref", "-d", "refs/heads/side", cwd=bare)
        assert at_remote(side).gone == ()
        run.git("update-ref", "-d", "refs/pull/1/head", cwd=bare)
        shown = side.wtxtgit("store", "prune", "--remote").stdout
        assert f"1 of {len(packs)} packs".encode() in shown
        assert b"--force" in shown
        assert {*there.glob("*.pack")} == packs
        marked = side.wtxtgit("store", "prune", "--remote", "--force").stdout
        assert b"a later prune deletes marked packs" in marked
        assert {*there.glob("*.pack")} == packs
        assert len([*there.glob("*.unneeded")]) == 1
        side.wtxtgit("store", "prune", "--remote", "--force")
        assert {*there.glob("*.pack")} == packs
        make_old(there)
        side.wtxtgit("store", "prune", "--remote", "--force")
        left = {path.stem for path in there.glob("*.pack")}
        assert len(left) == len(packs) - 1
        assert left == {path.stem for path in there.glob("*.index")}
        assert left == {*(there / "packs.txt").read_text().split()}
        clone = cloned(bare, "clone", there.parent)
        use_folder(clone, there)
        clone.wtxtgit("fetch", "main", "main~1", "main~2")
        assert all(has(clone, "main", "main~1", "main~2"))
        # The mark outlives the pack.
        assert at_remote(side, force=True).gone == ()
        assert len([*there.glob("*.unneeded")]) == 1
        make_old(side.path / ".git/wtxt/store/remotes")
        at_remote(side, force=True)
        assert [*there.glob("*.unneeded")] == []

    def test_not_by_what_was_seen_long_ago(self, side: Repo, bare: Path, there: Path) -> None:
        """A machine may sleep in the middle of it."""
        run.git("update-ref", "-d", "refs/heads/side", cwd=bare)
        make_old(there)
        assert len(at_remote(side, force=True).marked) == 1
        make_old(there)
        began = time.time() - 20 * DAY
        with pytest.raises(EnvironmentFailure, match="longer than the grace time"):
            prune_remote(Repository.discover(side.path), began, began - 14 * DAY, force=True)
        assert len([*there.glob("*.pack")]) == 4

    def test_both_steps_at_once(self, side: Repo, bare: Path, there: Path) -> None:
        run.git("update-ref", "-d", "refs/heads/side", cwd=bare)
        shown = side.wtxtgit("store", "prune", "--remote", "--force", "--expire", "0").stdout
        assert b"1 of 4 packs" in shown
        assert len([*there.glob("*.pack")]) == 3
        assert [*there.glob("*.unneeded")] == []

    def test_what_is_kept_of_its_packs_is_not_believed(self, own: Repo, there: Path) -> None:
        own.wtxtgit("push")
        make_old(there)
        for end in own.path.glob(".git/wtxt/store/remotes/*/*.index"):
            forge_end(end, "other names")
        assert at_remote(own, force=True).gone == ()
        assert pruned(own, recent=0).remote is not None
        own.wtxtgit("fetch", "main", "main~1", "main~2")
        assert has(own, "main", "main~1", "main~2") == [True, True, True]

    def test_what_is_young_stays(self, side: Repo, bare: Path, there: Path) -> None:
        run.git("update-ref", "-d", "refs/heads/side", cwd=bare)
        done = at_remote(side, force=True)
        assert (done.gone, done.young) == ((), 1)
        half = there / f"{'ab' * 32}.pack"
        half.write_bytes(b"half")
        assert at_remote(side).young == 2
        make_old(there)
        assert len(at_remote(side, force=True).marked) == 2
        make_old(there)
        assert len(at_remote(side, force=True).gone) == 2
        assert not half.exists()

    def test_a_git_remote(self, own: Repo, bare: Path) -> None:
        own.git("config", "wtxtgit.store", "git+origin")
        own.git("checkout", "-q", "-b", "side", "main~2")
        own.wtxtgit("push", "origin", "main")
        version(own, 40)
        own.wtxtgit("push")
        forget(own, "side")
        # Of git's refs nobody knows how old they are but who has seen them.
        assert [(at_remote(own, force=True).gone, at_remote(own).young)] == [((), 1)]
        make_old(own.path / ".git/wtxt/store/remotes")
        assert len(at_remote(own, force=True).marked) == 1
        assert at_remote(own, force=True).gone == ()
        make_old(own.path / ".git/wtxt/store/remotes")
        done = at_remote(own, force=True)
        assert len(done.gone) == 1
        left = run.git("for-each-ref", "--format=%(refname)", "refs/wtxt", cwd=bare)
        assert left.count(b".pack") == left.count(b".index") == done.packs - 1 > 0
        shutil.rmtree(own.path / ".git/wtxt/store")
        own.wtxtgit("fetch", "main", "main~1", "main~2")
        assert all(has(own, "main", "main~1", "main~2"))

    def test_not_from_a_clone_that_lacks_something(self, own: Repo, bare: Path) -> None:
        run.git("config", "uploadpack.allowFilter", "true", cwd=bare)
        for how in ("--depth=1", "--filter=blob:none"):
            folder = own.path.parent / how
            run.git("clone", "-q", how, "--no-checkout", bare.as_uri(), str(folder))
            use_folder(Repo(folder), own.path.parent / "there")
            with pytest.raises(EnvironmentFailure):
                at_remote(Repo(folder))

    def test_options_that_do_not_fit(self, own: Repo) -> None:
        for words in (("--force",), ("--remote", "--recent", "3"), ("--remote", "-f", "-n")):
            own.wtxtgit("store", "prune", *words, ok=(2,))
