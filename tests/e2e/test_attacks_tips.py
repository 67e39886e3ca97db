"""Attacks on where an audit looks: pushes, tags, branches, and what an earlier one has said."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.hostile import (
    BEFORE,
    NEW,
    REVOKED,
    SECOND,
    UNTRUSTED,
    assert_refused,
    at_once,
    attributes,
    audit,
    commit_of,
    put_copy,
    stage,
    stage_move,
    store,
)
from tests.e2e.runner import NONE, Ran, Runner
from tests.e2e.sealed import LEDGER, MODEL, ROOT, SIGNERS, Sealed, checkpoint, text
from tests.kit import Repo

pytestmark = pytest.mark.slow

EVIL = checkpoint(66.0)


def evil(repo: Sealed) -> str:
    """Commit a model that nobody sealed."""
    repo.put(66.0)
    return at_once(repo, "evil")


def innocent(repo: Sealed, name: str = "readme") -> str:
    repo.write(name, "x\n")
    repo.add(name)
    return at_once(repo, name)


class TestPushes:
    """A push is judged with what the branch held; what was red stays red until it is mended."""

    def test_red_and_then_several_innocent_ones(self, base: Sealed) -> None:
        was = evil(base)
        for number in range(3):
            tip = innocent(base, f"readme-{number}")
            assert_refused(base, tip, "content-mismatch", was=was)
            was = tip

    def test_red_and_then_an_honest_generation_of_another_one(self, base: Sealed) -> None:
        was = evil(base)
        tip = base.generation(5.0, name=NEW)
        assert_refused(base, tip, "content-mismatch", was=was)

    def test_a_rollback_and_then_an_innocent_one(self, base: Sealed) -> None:
        """The tree is as somebody sealed it, once."""
        base.take(ROOT, MODEL, LEDGER)
        was = at_once(base)
        assert_refused(base, innocent(base), "ledger-rewritten", was=was)

    def test_a_rollback_and_then_an_honest_generation(self, base: Sealed) -> None:
        """A signer goes on from what a rollback left: the generation between is lost."""
        base.take(ROOT, MODEL, LEDGER)
        was = at_once(base)
        tip = base.generation(5.0)
        assert_refused(base, tip, "ledger-rewritten", was=was)

    def test_a_move_and_then_an_innocent_one(self, base: Sealed) -> None:
        stage_move(base, MODEL, NEW)
        was = at_once(base)
        assert_refused(base, innocent(base), "moved-unsealed", was=was)

    def test_a_move_and_then_another_one_in_its_place(self, base: Sealed) -> None:
        """As two pushes, of which the second adds a file."""
        stage_move(base, MODEL, "old.safetensors")
        was = at_once(base)
        attributes(base, f"{MODEL} -filter")
        stage(base, MODEL, EVIL)
        assert_refused(base, at_once(base), was=was)

    def test_signers_and_then_an_innocent_one(self, base: Sealed) -> None:
        base.add_signer("mallory")
        base.seal(SIGNERS, key="mallory")
        was = at_once(base)
        assert_refused(base, innocent(base), "signers-changed", was=was)

    def test_a_strangers_record_and_then_a_signers(self, base: Sealed) -> None:
        """The last record is good; the one before it nobody trusted made."""
        was = base.generation(66.0, key="mallory")
        tip = base.generation(67.0)
        assert_refused(base, tip, *UNTRUSTED, was=was)

    def test_a_folder_and_then_an_innocent_one(self, base: Sealed) -> None:
        base.git("rm", "-q", MODEL)
        stage(base, f"{MODEL}/data.pkl", b"evil\n")
        was = at_once(base)
        tip = commit_of(base, was)
        assert_refused(base, tip, "untracked-artifact", was=was)

    def test_attributes_and_then_an_innocent_one(self, base: Sealed) -> None:
        attributes(base, f"{MODEL} text eol=crlf")
        was = at_once(base)
        assert_refused(base, commit_of(base, was), "altered-checkout", was=was)

    def test_a_twin_and_then_an_innocent_one(self, base: Sealed) -> None:
        stage(base, MODEL.upper(), EVIL)
        was = at_once(base)
        assert_refused(base, commit_of(base, was), "untracked-artifact", was=was)

    def test_back_to_before_it(self, base: Sealed) -> None:
        """A force push to the commit before a generation, or to an honest fork of it."""
        base.branch("fork", ROOT)
        fork = base.generation(9.0)
        for tip in (ROOT, fork):
            said = audit(base, tip, "--was", SECOND)
            assert said.code != 0
            assert "bad-root" in said.kinds

    def test_back_to_before_a_removal(self, revoked: Sealed) -> None:
        """The branch forgets that mallory is out; the old value of the branch does not."""
        revoked.branch("late", BEFORE)
        tip = revoked.generation(66.0, key="mallory")
        said = audit(revoked, tip, "--was", REVOKED)
        assert said.code != 0
        assert {"bad-root", "untrusted-signer"} <= said.kinds
        assert "mallory@example.com" not in said.report["signers"]

    def test_with_an_old_tip_that_is_an_ancestor(self, base: Sealed) -> None:
        """`--was` of something older than the branch held widens nothing."""
        base.take(ROOT, MODEL, LEDGER)
        tip = at_once(base)
        for was in (ROOT, SECOND):
            assert audit(base, f"{was}..{tip}", "--was", was).code == 1

    def test_that_the_audit_knows_of(self, base: Sealed) -> None:
        """What is kept of an earlier audit is of blobs, and no verdict."""
        bad = evil(base)
        for _ in range(2):
            said = base.call("audit", "--json", "--trust-root", ROOT, bad, ok=(1,))
            assert said.kinds == {"content-mismatch"}
        tip = innocent(base)
        given = ("audit", "--json", "--trust-root", ROOT, f"{bad}..{tip}", "--was", bad)
        assert base.call(*given, ok=(1,)).kinds == {"content-mismatch"}


class TestAllTips:
    """`audit --all`: whatever somebody may check out by a name."""

    @pytest.mark.parametrize(
        "ref", ["refs/heads/other", "refs/tags/v2", "refs/heads/a/b/c", "refs/tags/nightly/1"]
    )
    def test_an_evil_one(self, base: Sealed, ref: str) -> None:
        bad = evil(base)
        base.git("reset", "-q", "--hard", SECOND)
        assert audit(base, "--all").code == 0
        base.git("update-ref", ref, bad)
        said = audit(base, "--all")
        assert (said.code, said.kinds) == (1, {"content-mismatch"})

    @pytest.mark.parametrize("depth", [1, 3])
    def test_an_annotated_tag(self, base: Sealed, depth: int) -> None:
        """A tag of a tag of an evil commit."""
        target = evil(base)
        base.git("reset", "-q", "--hard", SECOND)
        for number in range(depth):
            base.git("tag", "-a", "-m", "release", f"v{number}", target)
            target = f"v{number}"
        assert audit(base, "--all").code == 1
        assert_refused(base, target, "content-mismatch")

    def test_one_without_a_root(self, base: Sealed) -> None:
        """A history of its own under a name of this repository."""
        base.git("update-ref", "refs/heads/other", commit_of(base, tree=SECOND))
        said = audit(base, "--all")
        assert said.code != 0
        assert "bad-root" in said.kinds

    def test_a_tag_that_was_mended_on_main(self, base: Sealed) -> None:
        """Main was mended; the release that was made in between was not."""
        base.git("tag", "release", evil(base))
        base.put(2.0)
        at_once(base, "mended")
        said = audit(base, "--all")
        assert said.code == 1
        assert_refused(base, "release", "content-mismatch")


class TestTips:
    def test_one_that_reaches_no_root(self, base: Sealed) -> None:
        base.git("checkout", "-q", "--orphan", "other")
        assert_refused(base, at_once(base), "bad-root")

    def test_one_below_the_root(self, base: Sealed) -> None:
        """The commit before the one that is trusted."""
        assert_refused(base, ROOT, "bad-root", root=SECOND)

    def test_a_root_without_signers(self, base: Sealed) -> None:
        """Where signatures are required, nobody is there who could have made them."""
        base.git("rm", "-q", "-r", ".wtxt")
        root = at_once(base, "nobody")
        assert_refused(base, innocent(base), "bad-root", root=root)

    def test_a_root_that_is_evil_itself(self, base: Sealed) -> None:
        """A branch that is named as the root's tag is: the tag is what counts."""
        bad = evil(base)
        base.git("branch", ROOT, bad)
        assert audit(base, bad, root=base.oid(f"refs/tags/{ROOT}")).code == 1
        assert audit(base, bad).code == 4

    def test_a_name_that_is_several_things(self, base: Sealed) -> None:
        """A tag of the branch's name, at an honest commit: an evil branch is looked for."""
        bad = evil(base)
        base.git("tag", "main", SECOND)
        assert audit(base, bad).code == 1
        assert audit(base, "refs/heads/main").code == 1


@pytest.fixture
def server(base: Sealed, tmp_path: Path, command: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A bare repository with the hook of the docs, and what is honest."""
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    bare = Repo(tmp_path / "server.git")
    base.git("init", "-q", "--bare", str(bare.path))
    base.git("remote", "add", "server", str(bare.path))
    shutil.copy(Path(__file__).parents[2] / "docs/ci/pre-receive", bare.path / "hooks/pre-receive")
    bare.git("config", "wtxtgit.trustRoot", base.oid(ROOT))
    base.git("push", "-q", "server", f"{SECOND}:refs/heads/main")
    return bare


class TestPreReceive:
    """What does not hold gets in by no name."""

    def refused(self, repo: Sealed, server: Repo, *words: str) -> str:
        before = server.git("for-each-ref")
        done = repo.run("git", "push", "server", *words, ok=(1,))
        assert server.git("for-each-ref") == before
        return done.stderr.decode()

    def test_what_is_honest_gets_in(self, base: Sealed, server: Repo) -> None:
        base.git("tag", "-a", "-m", "x", "v1", SECOND)
        base.generation(3.0)
        base.git("push", "-q", "server", "main", "v1", "HEAD:refs/heads/new")
        base.git("push", "-q", "server", "--delete", "new", "v1")

    @pytest.mark.parametrize(
        "ref", ["refs/heads/new", "refs/heads/a/b", "refs/tags/v2", "refs/other/x", "refs/notes/x"]
    )
    def test_a_new_name(self, base: Sealed, server: Repo, ref: str) -> None:
        evil(base)
        assert "content-mismatch" in self.refused(base, server, f"HEAD:{ref}")

    def test_an_annotated_tag(self, base: Sealed, server: Repo) -> None:
        base.git("tag", "-a", "-m", "x", "v2", evil(base))
        assert "content-mismatch" in self.refused(base, server, "v2")

    @pytest.mark.parametrize("kind", ["tree", "blob"])
    def test_a_tag_of_no_commit(self, base: Sealed, server: Repo, kind: str) -> None:
        """Its files can be checked out as those of a commit can."""
        evil(base)
        what = "HEAD^{tree}" if kind == "tree" else f"HEAD:{MODEL}"
        self.refused(base, server, f"{base.git('rev-parse', what).decode().strip()}:refs/tags/v2")

    def test_a_tag_moved_to_another_commit(self, base: Sealed, server: Repo) -> None:
        base.git("push", "-q", "server", f"{SECOND}:refs/tags/v1")
        evil(base)
        self.refused(base, server, "--force", "HEAD:refs/tags/v1")

    def test_with_innocent_ones(self, base: Sealed, server: Repo) -> None:
        """One of three names, between the others."""
        base.git("tag", "b", evil(base))
        base.git("reset", "-q", "--hard", SECOND)
        base.generation(3.0)
        base.git("tag", "a")
        base.git("tag", "c")
        self.refused(base, server, "a", "b", "c", "main")

    def test_on_what_got_in_before(self, base: Sealed, server: Repo) -> None:
        """Red once, with the hook away: the next push says so, on whichever branch."""
        hook = server.path / "hooks/pre-receive"
        hook.chmod(0o644)
        evil(base)
        base.git("push", "-q", "server", "main")
        hook.chmod(0o755)
        innocent(base)
        assert "content-mismatch" in self.refused(base, server, "main")
        assert "content-mismatch" in self.refused(base, server, "HEAD:refs/heads/new")
        assert "content-mismatch" in self.refused(base, server, "HEAD~1:refs/tags/v2")

    def test_another_history(self, base: Sealed, server: Repo) -> None:
        orphan = commit_of(base, tree=SECOND)
        assert "bad-root" in self.refused(base, server, f"{orphan}:refs/heads/new")

    def test_a_branch_from_before_a_removal(self, revoked: Sealed, server: Repo) -> None:
        """The server knows who is out, whatever the branch knows."""
        revoked.git("push", "-q", "server", f"{REVOKED}:refs/heads/main")
        revoked.branch("late", BEFORE)
        revoked.generation(66.0, key="mallory")
        for ref in ("refs/heads/late", "refs/tags/v2"):
            said = self.refused(revoked, server, f"HEAD:{ref}")
            assert any(kind in said for kind in UNTRUSTED)

    def test_a_rollback_as_a_branch_from_before(self, base: Sealed, server: Repo) -> None:
        """Main laundered: its new tip has an old first parent."""
        base.take(ROOT, MODEL, LEDGER)
        rolled = at_once(base)
        tip = commit_of(base, ROOT, rolled, tree=rolled)
        assert "ledger-rewritten" in self.refused(base, server, f"{tip}:refs/heads/main")

    def test_replacing_refs(self, base: Sealed, server: Repo) -> None:
        """Who fetches them sees other commits than the server judged."""
        evil(base)
        self.refused(base, server, f"HEAD:refs/replace/{base.oid(SECOND)}")


class TestAction:
    """The real step of `action.yml`."""

    @pytest.fixture
    def runner(self, base: Sealed, tmp_path: Path) -> Runner:
        bare = Repo(tmp_path / "server.git")
        base.git("clone", "-q", "--bare", str(base.path), str(bare.path))
        base.git("remote", "add", "server", str(bare.path))
        made = Runner(bare, tmp_path / "runner")
        made.start()
        return made

    def run(self, repo: Sealed, runner: Runner, ref: str, event: str, **given: str) -> Ran:
        repo.git("push", "-q", "server", f"+HEAD:{ref}")
        runner.checkout(ref)
        context = {
            "inputs.trust-root": repo.oid(f"refs/tags/{ROOT}"),
            "inputs.require-signed": "true",
            **{f"github.event.{key}": value for key, value in given.items()},
        }
        return runner.audit(context, {"GITHUB_EVENT_NAME": event, "GITHUB_REF": ref})

    def pushed(
        self, repo: Sealed, runner: Runner, before: str, ref: str = "refs/heads/main"
    ) -> Ran:
        return self.run(repo, runner, ref, "push", before=before, after=repo.head)

    def pulled(self, repo: Sealed, runner: Runner, base: str, head: str) -> Ran:
        """Of a merge result, which HEAD is."""
        repo.git("push", "-q", "server", "+HEAD:refs/pull/1/merge")
        runner.checkout("refs/pull/1/merge")
        context = {
            "inputs.trust-root": repo.oid(f"refs/tags/{ROOT}"),
            "inputs.require-signed": "true",
            "github.event.pull_request.base.sha": base,
            "github.event.pull_request.head.sha": head,
        }
        variables = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/1/merge"}
        return runner.audit(context, variables)

    def test_an_innocent_push_after_a_red_one(self, base: Sealed, runner: Runner) -> None:
        bad = evil(base)
        innocent(base)
        ran = self.pushed(base, runner, bad)
        assert (ran.code, ran.kinds) == (1, {"content-mismatch"})

    @pytest.mark.parametrize("ref", ["refs/heads/new", "refs/tags/v2"])
    def test_a_new_name(self, base: Sealed, runner: Runner, ref: str) -> None:
        evil(base)
        assert self.pushed(base, runner, NONE, ref).code == 1

    def test_a_laundered_rollback(self, base: Sealed, runner: Runner) -> None:
        base.take(ROOT, MODEL, LEDGER)
        rolled = at_once(base)
        base.git("reset", "-q", "--hard", commit_of(base, ROOT, rolled, tree=rolled))
        ran = self.pushed(base, runner, base.oid(SECOND))
        assert (ran.code, ran.kinds) == (1, {"ledger-rewritten"})

    def test_a_pull_request_from_before_a_removal(self, revoked: Sealed, runner: Runner) -> None:
        """Its own commits are in order for all that it knows; merged they are not."""
        revoked.branch("pr", BEFORE)
        head = revoked.generation(66.0, name=NEW, key="mallory")
        revoked.git("read-tree", REVOKED)
        put_copy(revoked, head, NEW, NEW)
        revoked.git("reset", "-q", "--hard", commit_of(revoked, REVOKED, head))
        ran = self.pulled(revoked, runner, revoked.oid(REVOKED), head)
        assert ran.code in (1, 4)
        assert ran.kinds & set(UNTRUSTED)

    def test_a_pull_request_whose_merge_is_evil_by_itself(
        self, base: Sealed, runner: Runner
    ) -> None:
        """Each side is in order, and the tree that would be main's is not."""
        base.branch("pr", ROOT)
        head = innocent(base)
        base.git("read-tree", SECOND)
        stage(base, MODEL, text(66.0))
        base.git("reset", "-q", "--hard", commit_of(base, SECOND, head))
        assert self.pulled(base, runner, base.oid(SECOND), head).code == 1

    def test_a_pull_request_that_goes_back(self, base: Sealed, runner: Runner) -> None:
        """Its branch is old; the merge takes its model."""
        base.branch("pr", ROOT)
        head = innocent(base)
        base.git("reset", "-q", "--hard", commit_of(base, SECOND, head, tree=head))
        ran = self.pulled(base, runner, base.oid(SECOND), head)
        assert ran.code == 1
        assert "ledger-rewritten" in ran.kinds


def test_a_tag_object_of_another_type(base: Sealed) -> None:
    """A tag that says that a commit is a tree: who peels it may stop too early."""
    bad = evil(base)
    lines = f"object {bad}\ntype tree\ntag v2\ntagger a <a@x> 1700000000 +0000\n\nx\n"
    oid = store(base, lines.encode(), "tag")
    (base.path / ".git/refs/tags/v2").write_text(f"{oid}\n")
    said = audit(base, "v2")
    assert said.code in (1, 3, 5)
