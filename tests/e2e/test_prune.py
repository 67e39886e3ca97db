"""`wtxtgit prune`: what is kept, what is proved, and what attackers make of it.

docs/spec/pruned.md has the claim.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    SIGNERS,
    Sealed,
    checkpoint,
    forged,
    secret,
    text,
)
from tests.kit.pasting import make_pastable, paste

pytestmark = pytest.mark.slow

PRUNED, PRUNED_LEDGER = ".wtxt/pruned", ".wtxt/pruned.wsum"
APPLY = ("--key", "alice", "--apply")


@pytest.fixture
def grown(chain: Sealed) -> Sealed:
    """Six generations after the root, one a day; the third has a tag."""
    for day in range(1, 7):
        chain.put(10.0 + day)
        chain.seal(MODEL)
        date = f"2026-03-0{day}T12:00:00Z"
        env = {"GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date}
        chain.git("commit", "-q", "-m", f"day {day}", env=env)
        if day == 3:
            chain.git("tag", "-a", "-m", "three", "three")
    chain.git("config", "wtxtgit.trustRoot", chain.oid("root"))
    chain.git("tag", "-d", "root")
    return chain


def pruned(repo: Sealed, *arguments: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    return repo.call("prune", *APPLY, "--json", *arguments, ok=ok).report


def kept(report: dict[str, Any]) -> dict[str, list[str]]:
    return {one["subject"]: one["why"] for one in report["commits"] if one["why"]}


def proves(repo: Sealed, old: str, *, ok: tuple[int, ...], root: str | None = None) -> str:
    given = () if root is None else ("--trust-root", root)
    said = repo.call("prune", "--prove", old, "HEAD", *given, ok=ok)
    return said.out + said.err


def test_without_apply_nothing_changes(grown: Sealed) -> None:
    before = grown.git("for-each-ref"), grown.git("status", "--porcelain"), grown.head
    said = grown.call("prune", "--json", "--keep-every", "2d", "--keep-tagged")
    assert kept(said.report) == {
        "day 2": ["every"],
        "day 3": ["tag"],
        "day 4": ["every"],
        "day 6": ["tip", "every"],
    }
    assert before == (grown.git("for-each-ref"), grown.git("status", "--porcelain"), grown.head)
    # The tag goes along: it is none of the refs that stay at the old history.
    assert said.report["others"] == []


def test_the_shorter_history_audits_from_the_new_root_and_has_the_same_files(
    grown: Sealed,
) -> None:
    old = grown.head
    report = pruned(grown, "--keep-last", "2", "--keep-tagged")
    line = grown.git("rev-list", "--reverse", "HEAD").decode().split()
    assert line == [one["new"] for one in report["commits"] if one["why"]]
    assert line[0] == report["root"]
    assert grown.audit(root=line[0]).report["findings"] == []
    assert grown.git("status", "--porcelain") == b""
    assert (grown.path / PRUNED).read_bytes().endswith(f"kept={old}\n".encode())
    for one in report["commits"]:
        if one["why"]:
            told = grown.git("diff", "--name-only", one["commit"], one["new"]).decode().split()
            assert told == [PRUNED, PRUNED_LEDGER]
            form = "--format=%an %ae %at %cn %ct %B"
            was, now = (grown.git("log", "-1", form, one[key]) for key in ("commit", "new"))
            assert was == now
    assert grown.oid("three^{commit}") == line[0]
    assert grown.oid(f"{report['backup']}/heads/main") == old
    assert "sealed by alice@example.com" in proves(grown, old, ok=(0,))
    grown.generation(7.0)
    assert grown.audit(root=line[0]).report["findings"] == []
    proves(grown, old, ok=(0,))
    out = grown.path.parent / "old.safetensors"
    grown.call("restore", f"three:{MODEL}", "-o", str(out))
    assert out.read_bytes() == checkpoint(13.0)


def test_a_branch_is_pruned_again(grown: Sealed) -> None:
    first = pruned(grown, "--keep-last", "4")["root"]
    old = grown.head
    grown.generation(7.0)
    middle = grown.head
    said = grown.call(
        "prune", "--trust-root", first, "--key", "alice", "--apply", "--json", "--keep-last", "2"
    )
    assert grown.audit(root=said.report["root"]).report["findings"] == []
    proves(grown, middle, ok=(0,), root=first)
    proves(grown, old, ok=(1,), root=first)


def test_changes_of_signers_are_kept_and_the_threshold_counts(grown: Sealed) -> None:
    grown.add_signer("bob")
    grown.change_signers("alice")
    grown.generation(7.0, key="bob")
    grown.set_threshold(2)
    grown.change_signers("alice")
    grown.generation(8.0, key="bob")
    old = grown.head
    said = grown.call("prune", *APPLY, "--keep-every", "4w", "--keep-last", "6", ok=(4,))
    assert "2 signers have to seal a new trust root" in said.err
    assert grown.head == old
    report = pruned(grown, "--keep-last", "6", "--key", "bob")
    assert grown.audit(root=report["root"]).report["findings"] == []
    assert "alice@example.com, bob@example.com" in proves(grown, old, ok=(0,))


def test_a_change_of_signers_between_those_that_are_kept_is_kept(grown: Sealed) -> None:
    grown.git("tag", "six")
    grown.add_signer("bob")
    grown.change_signers("alice")
    for value in (7.0, 8.0):
        grown.generation(value, key="bob")
    report = pruned(grown, "--keep-tagged")
    assert ["signers"] in kept(report).values()
    assert len(kept(report)) == 4
    assert grown.audit(root=report["root"]).report["findings"] == []


def test_merges_become_commits_of_one_parent(grown: Sealed) -> None:
    grown.branch("side")
    grown.generation(1.5, name="other.safetensors")
    grown.switch("main")
    grown.generation(7.0)
    grown.merge("side")
    old = grown.head
    report = pruned(grown, "--keep-last", "2")
    assert grown.git("rev-list", "--count", "--min-parents=2", "HEAD") == b"0\n"
    assert grown.audit(root=report["root"]).report["findings"] == []
    proves(grown, old, ok=(0,))
    assert "refs/heads/side" in report["others"]


def _signed_tag(repo: Sealed, name: str) -> None:
    tag = repo.git("cat-file", "tag", "three").replace(b"tag three", b"tag " + name.encode())
    tag += b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"
    made = repo.git("hash-object", "-t", "tag", "-w", "--stdin", stdin=tag).decode().strip()
    repo.git("update-ref", f"refs/tags/{name}", made)


def test_tags_that_lose_their_signature_are_named(grown: Sealed) -> None:
    _signed_tag(grown, "signed")
    grown.git("tag", "-a", "-m", "of a tag", "outer", "signed")
    grown.git("checkout", "-q", "HEAD~5")
    grown.git("tag", "-s", "-m", "goes", "none", ok=(0, 1, 128))
    grown.switch("main")
    names = ["refs/tags/outer", "refs/tags/signed"]
    keep = ("--keep-last", "2", "--keep-tagged")
    assert grown.call("prune", *keep, "--json").report["signed_tags"] == names
    plan = grown.call("prune", *keep).err
    assert f"2 tags would lose their signatures: {', '.join(names)}" in plan
    done = grown.call("prune", *APPLY, *keep)
    assert f"2 tags lost their signatures: {', '.join(names)}" in done.err
    assert b"SIGNATURE" not in grown.git("cat-file", "tag", "signed")
    # Where their commit goes, they stay as they are.
    grown.git("update-ref", "refs/heads/main", "refs/wtxt/before/1/heads/main")
    grown.git("reset", "-q", "--hard")
    grown.git("fetch", "-q", ".", "+refs/wtxt/before/1/tags/*:refs/tags/*")
    again = grown.call("prune", "--keep-last", "2", "--json")
    assert again.report["signed_tags"] == []


@pytest.fixture
def deleted(grown: Sealed) -> Sealed:
    """A sealed deletion whose ledger left the tree later."""
    grown.git("rm", "-q", OTHER)
    grown.seal(OTHER)
    grown.commit("deleted")
    grown.git("rm", "-q", OTHER_LEDGER)
    grown.commit("forgotten")
    grown.generation(7.0)
    assert grown.audit(root=grown.git("config", "wtxtgit.trustRoot").decode().strip()).found == []
    return grown


def _comes_back(repo: Sealed, root: str) -> set[str]:
    """What an audit finds where the deleted checkpoint is there again."""
    repo.take("refs/wtxt/before/1/heads/main^{/day 6}", OTHER, OTHER_LEDGER)
    repo.commit("back")
    return repo.audit(root=root).kinds


def test_a_deletion_that_no_kept_commit_knows_is_told(deleted: Sealed) -> None:
    wanted = {"path": OTHER, "gen": 2, "commit": deleted.oid("HEAD~2")}
    assert deleted.call("prune", "--keep-last", "3", "--json").report["forgotten"] == []
    plan = deleted.call("prune", "--keep-last", "1", "--json").report
    assert plan["forgotten"] == [wanted]
    told = f"{OTHER}: the new history would forget its sealed deletion"
    assert told in deleted.call("prune", "--keep-last", "1").err
    old = deleted.head
    done = deleted.call("prune", *APPLY, "--keep-last", "1")
    assert f"{OTHER}: the new history forgets its sealed deletion" in done.err
    assert "git checkout" not in done.err
    assert f"{OTHER}: the new history forgets its sealed deletion" in proves(deleted, old, ok=(0,))
    proof = deleted.call("prune", "--prove", old, "HEAD", "--json").report
    assert proof["forgotten"] == [wanted]
    assert _comes_back(deleted, deleted.head) == set()


def test_what_the_plan_says_keeps_a_deletion(deleted: Sealed) -> None:
    make_pastable(deleted)
    said = deleted.call("prune", "--keep-last", "1").err
    (first,) = re.findall(r"hint: (git checkout .*), then git commit keeps", said)
    paste(deleted, first)
    deleted.commit("kept")
    report = pruned(deleted, "--keep-last", "1")
    assert report["forgotten"] == []
    assert _comes_back(deleted, report["root"]) == {"ledger-rewritten"}


def test_a_deletion_is_told_though_another_checkpoint_took_its_place(deleted: Sealed) -> None:
    """That one may move on, and what was deleted come back."""
    ledger = deleted.ledger(OTHER_LEDGER, "HEAD~2")
    deleted.write(OTHER, text(3.0))
    made = forged(
        ledger, text(3.0), secret("alice"), keep=0, gen=9, ts="2099-01-01T00:00:00Z", build="b"
    )
    deleted.write(OTHER_LEDGER, made)
    deleted.add()
    deleted.commit("in its place")
    plan = deleted.call("prune", "--keep-last", "1", "--json").report
    # Its ledger can't be put back there.
    assert plan["forgotten"] == [{"path": OTHER, "gen": 2}]


def test_a_remote_loses_nothing_that_nobody_confirmed(grown: Sealed, tmp_path: Path) -> None:
    there = tmp_path / "there.git"
    grown.git("init", "-q", "--bare", str(there))
    grown.git("remote", "add", "origin", str(there))
    grown.git("push", "-q", "origin", "main")
    old = grown.head
    said = grown.call("prune", *APPLY, "--keep-last", "2", ok=(2,))
    assert "origin would lose" in said.err
    assert grown.head == old
    grown.generation(7.0)
    grown.git("push", "-q", "origin", "main")
    grown.git("reset", "-q", "--hard", old)
    said = grown.call("prune", *APPLY, "--keep-last", "2", "--confirm", "origin", ok=(5,))
    assert "commits of main that are not here" in said.err
    assert grown.head == old
    grown.git("reset", "-q", "--hard", "origin/main")
    pruned(grown, "--keep-last", "2", "--confirm", "origin")


def test_a_remote_whose_branches_are_kept_elsewhere_is_one(grown: Sealed, tmp_path: Path) -> None:
    there = tmp_path / "there.git"
    grown.git("init", "-q", "--bare", str(there))
    grown.git("remote", "add", "up", str(there))
    grown.git("config", "remote.up.fetch", "+refs/heads/*:refs/up/*")
    grown.generation(7.0)
    grown.git("push", "-q", "up", "main")
    grown.git("reset", "-q", "--hard", "HEAD~1")
    old = grown.head
    said = grown.call("prune", *APPLY, "--keep-last", "2", ok=(5,))
    assert "up has commits of main that are not here" in said.err
    grown.git("reset", "-q", "--hard", "refs/up/main")
    said = grown.call("prune", *APPLY, "--keep-last", "2", ok=(2,))
    assert "up would lose" in said.err
    grown.git("reset", "-q", "--hard", old)


def test_notes_that_stay_with_the_old_ids_are_told_of(grown: Sealed) -> None:
    grown.git("notes", "add", "-m", "a note", "HEAD~1")
    tree = grown.git("rev-parse", "HEAD^{tree}").decode().strip()
    grown.git("notes", "--ref", "other", "add", "-m", "a note", tree)
    report = pruned(grown, "--keep-last", "2", "--keep-tagged")
    assert report["others"] == ["refs/notes/commits"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((*APPLY,), 2, "no commits selected to keep"),
        (("--keep-last", "2", "--trust-root", "none"), 5, "names nothing"),
        (("--keep-last", "2", "--key", "mallory", "--apply"), 4, "is not trusted"),
        ((*APPLY, "--keep-every", "soon"), 2, "not a length of time"),
        ((*APPLY, "three", "--keep-last", "1"), 2, "is not a branch"),
    ],
)
def test_what_is_refused(
    grown: Sealed, arguments: tuple[str, ...], code: int, message: str
) -> None:
    refs = grown.git("for-each-ref")
    assert message in grown.call("prune", *arguments, ok=(code,)).err
    assert grown.git("for-each-ref") == refs


def test_a_work_tree_with_changes_or_a_file_in_the_way_stays(grown: Sealed) -> None:
    refs = grown.git("for-each-ref")
    grown.write(PRUNED, b"mine\n")
    said = grown.call("prune", *APPLY, "--keep-last", "2", ok=(5,))
    assert "exists, but is not committed" in said.err
    (grown.path / PRUNED).unlink()
    grown.write(MODEL, text(9.0))
    said = grown.call("prune", *APPLY, "--keep-last", "2", ok=(5,))
    assert "there are uncommitted changes" in said.err
    assert grown.git("for-each-ref") == refs


@pytest.mark.parametrize("again", [False, True])
def test_one_that_was_killed_before_its_refs_moved_is_made_again(
    grown: Sealed, *, again: bool
) -> None:
    root = grown.oid("HEAD~6")
    if again:
        root = pruned(grown, "--keep-last", "4")["root"]
        grown.generation(7.0)
    given = ("--trust-root", root, "--keep-last", "2")
    tip, paths = grown.head, (PRUNED, PRUNED_LEDGER)
    root = pruned(grown, *given)["root"]
    staged = [grown.git("rev-parse", f"{root}:{path}").decode().strip() for path in paths]
    # The record is staged, and the branch is where it was.
    grown.git("reset", "-q", "--hard", tip)
    for path, oid in zip(paths, staged, strict=True):
        grown.git("update-index", "--add", "--cacheinfo", f"100644,{oid},{path}")
    grown.git("checkout", "--", PRUNED)
    report = pruned(grown, *given)
    assert grown.audit(root=report["root"]).report["findings"] == []
    assert grown.git("status", "--porcelain") == b""


def test_a_history_that_does_not_hold_is_not_pruned(grown: Sealed) -> None:
    grown.put(9.0)
    old = grown.commit("not sealed")
    grown.call("prune", *APPLY, "--keep-last", "2", ok=(1,))
    assert grown.head == old


# What attackers make of it: each writes another history of the pruned one, whose tip is HEAD.


def _rewritten(repo: Sealed, change: Callable[[int], None]) -> None:
    """Write the branch anew; `change` is called with each commit's number, before it is made."""
    line = repo.git("rev-list", "--reverse", "HEAD").decode().split()
    parents: list[str] = []
    for number, oid in enumerate(line):
        repo.git("read-tree", "-u", "--reset", oid)
        change(number)
        repo.git("add", "--all")
        tree = repo.git("write-tree").decode().strip()
        form = "%an%n%ae%n%aI%n%cn%n%ce%n%cI"
        keys = ("AUTHOR_NAME", "AUTHOR_EMAIL", "AUTHOR_DATE")
        keys += ("COMMITTER_NAME", "COMMITTER_EMAIL", "COMMITTER_DATE")
        said = repo.git("log", "-1", f"--format={form}", oid).decode().splitlines()
        env = {f"GIT_{key}": value for key, value in zip(keys, said, strict=True)}
        message = repo.git("log", "-1", "--format=%B", oid).rstrip(b"\n") + b"\n"
        made = repo.git("commit-tree", tree, *parents, stdin=message, env=env).decode().strip()
        parents = ["-p", made]
    repo.git("reset", "-q", "--hard", made)


@dataclasses.dataclass
class _Attack:
    repo: Sealed
    number: int = 0

    def __call__(self, number: int) -> None:
        if number == self.number:
            self.act()

    def act(self) -> None:
        raise NotImplementedError


class _OtherContent(_Attack):
    """Other weights in the oldest commit, whose ledger says what it said."""

    def act(self) -> None:
        self.repo.write(MODEL, text(66.0))


class _OtherCode(_Attack):
    """A file that nobody seals."""

    def act(self) -> None:
        self.repo.write("setup.py", b"print('hello')\n")


class _OlderContent(_Attack):
    """What was sealed once, with its ledger."""

    def act(self) -> None:
        self.repo.take("refs/wtxt/before/1/heads/main~3", MODEL, LEDGER)


class _OtherSigners(_Attack):
    """Another one is trusted from the root on."""

    def act(self) -> None:
        self.repo.add_signer("mallory")


@pytest.mark.parametrize(
    ("attack", "number"),
    [
        (_OtherContent, 0),
        (_OtherContent, 1),
        (_OtherCode, 0),
        (_OlderContent, 1),
        (_OtherSigners, 0),
    ],
)
def test_content_that_changed_during_the_pruning_is_refused(
    grown: Sealed, attack: type[_Attack], number: int
) -> None:
    old = grown.head
    pruned(grown, "--keep-last", "2")
    _rewritten(grown, lambda _number: None)
    proves(grown, old, ok=(0,))
    _rewritten(grown, attack(grown, number))
    assert "differs from the one in" in proves(grown, old, ok=(1,))


def test_a_root_that_no_signer_sealed_is_refused(grown: Sealed) -> None:
    old = grown.head
    pruned(grown, "--keep-last", "2")
    lines = (grown.path / PRUNED_LEDGER).read_bytes().splitlines(keepends=True)
    unsigned = b"".join(line for line in lines if not line.startswith(b"sign "))

    def seal_by(key: str | None) -> Callable[[int], None]:
        def change(_number: int) -> None:
            grown.write(PRUNED_LEDGER, unsigned)
            if key is not None:
                grown.git("add", "--all")
                grown.seal("--cosign", PRUNED, key=key)

        return change

    _rewritten(grown, seal_by(None))
    assert "sealed by 0 of the signers" in proves(grown, old, ok=(4,))
    _rewritten(grown, seal_by("mallory"))
    assert "sealed by 0 of the signers" in proves(grown, old, ok=(4,))


def test_a_record_of_another_pruning_is_refused(grown: Sealed) -> None:
    """A pruning of a tip before the last one, which signers did seal, hides what came later."""
    newest = grown.head
    grown.git("reset", "-q", "--hard", "HEAD~1")
    older = grown.head
    pruned(grown, "--keep-last", "2")
    proves(grown, older, ok=(0,))
    assert "as the old tip" in proves(grown, newest, ok=(1,))


def test_a_history_that_was_not_pruned_is_refused(grown: Sealed) -> None:
    assert "no record of a pruning" in proves(grown, "HEAD", ok=(1,))


def test_the_signers_file_is_that_of_the_old_tip(grown: Sealed) -> None:
    """A signer who was taken out seals a pruning, from a tip at which he was trusted still."""
    grown.add_signer("bob")
    grown.change_signers("alice")
    grown.generation(7.0)
    grown.call("signers", "remove", "bob@example.com")
    grown.add(SIGNERS)
    grown.change_signers("alice")
    said = grown.call("prune", "--key", "bob", "--apply", "--keep-last", "1", ok=(4,))
    assert "this key is not trusted" in said.err
