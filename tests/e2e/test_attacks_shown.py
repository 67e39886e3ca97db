"""Attacks that were shown to succeed once, or could: each as it was shown, each refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.e2e import hostile, sealed
from tests.e2e.hostile import (
    BEFORE,
    DATA,
    MALLORY,
    NEW,
    NEW_LEDGER,
    REVOKED,
    SECOND,
    UNTRUSTED,
    assert_refused,
    at_once,
    attributes,
    audit,
    commit_of,
    entries,
    git_gives,
    stage,
    stage_move,
    tree_of,
)
from tests.e2e.runner import Runner
from tests.e2e.sealed import LEDGER, MODEL, ROOT, SIGNERS, SIGNERS_LEDGER, Sealed, checkpoint, text
from tests.kit import LAUNCHER, Repo
from wtxtgit.setup import hooks

pytestmark = pytest.mark.slow

EVIL = checkpoint(66.0)
"""What the attacker would have a victim load."""


def move_aside(repo: Sealed) -> None:
    """Two commits: a sealed model moves away, and another file stands there without a filter."""
    stage_move(repo, MODEL, "old.safetensors")
    at_once(repo, "tidy up")
    attributes(repo, f"{MODEL} -filter")
    stage(repo, MODEL, EVIL)
    at_once(repo, "a new model")


def test_01_move_aside_then_unfiltered_readd(base: Sealed) -> None:
    """Without a key: whoever loads the model by its name gets the attacker's bytes."""
    move_aside(base)
    assert git_gives(base, "HEAD", MODEL) == EVIL
    assert_refused(base, "HEAD", "moved-unsealed", "untracked-artifact", was=SECOND)


def test_02_launder_rollback_through_merge_of_old_first_parent(base: Sealed) -> None:
    """Without a key: main goes back to an old model, by a merge whose first parent is old."""
    base.take(ROOT, MODEL, LEDGER)
    rolled = at_once(base)
    tip = commit_of(base, ROOT, rolled, tree=rolled)
    assert base.blob(MODEL, tip) == text(1.0)
    assert_refused(base, tip, "ledger-rewritten", was=SECOND)


def test_07_revoked_key_laundered_full_audit(revoked: Sealed) -> None:
    """A revoked signer seals a model, and a merge with an old first parent brings it in."""
    evil = revoked.generation(66.0, key="mallory")
    tip = commit_of(revoked, BEFORE, evil, tree=evil)
    assert_refused(revoked, tip, *UNTRUSTED, was=REVOKED)


def test_11_wtxt_prefix_on_sealed_unfiltered_file(base: Sealed) -> None:
    """Without a key: a sealed program is replaced by one that begins as a text does."""
    base.write("load.py", "import os\n")
    base.add("load.py")
    base.seal("load.py")
    main = base.commit("a program")
    hostile.honest(base)
    base.write("load.py", 'WTXT = 1\nprint("owned")\n')
    base.add("load.py")
    at_once(base, "typo")
    assert hostile.python(base, "load.py") == b"owned\n"
    assert_refused(base, "HEAD", "content-mismatch", was=main)


def test_14_ci_red_push_forgotten_by_the_next(base: Sealed) -> None:
    """Without a key: a push that is found is followed by one that changes nothing of it."""
    base.put(66.0)
    red = at_once(base)
    assert audit(base, f"{SECOND}..{red}", "--was", SECOND).code == 1
    base.write("readme", "hi\n")
    base.add("readme")
    at_once(base, "readme")
    assert_refused(base, "HEAD", "content-mismatch", was=red)


def test_17_pre_receive_tag_not_audited(
    base: Sealed, tmp_path: Path, command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key: a release is a tag, and what it names was never judged."""
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    server = Repo(tmp_path / "server.git")
    base.git("init", "-q", "--bare", str(server.path))
    base.git("push", "-q", str(server.path), f"{SECOND}:refs/heads/main")
    hook = Path(__file__).parents[2] / "docs/ci/pre-receive"
    shutil.copy(hook, server.path / "hooks/pre-receive")
    server.git("config", "wtxtgit.trustRoot", base.oid(ROOT))
    base.git("push", "-q", str(server.path), f"{SECOND}:refs/tags/v1.0")
    base.put(66.0)
    at_once(base)
    for ref in ("refs/heads/main", "refs/tags/v2.0"):
        done = base.run("git", "push", str(server.path), f"HEAD:{ref}", ok=(1,))
        assert b"content-mismatch" in done.stderr
    assert server.git("for-each-ref", "--format=%(refname)").split() == [
        b"refs/heads/main",
        b"refs/tags/v1.0",
    ]


def test_20_action_push_move_aside(base: Sealed, tmp_path: Path) -> None:
    """The first one, as a push that the action judges."""
    bare = Repo(tmp_path / "server.git")
    base.git("clone", "-q", "--bare", str(base.path), str(bare.path))
    runner = Runner(bare, tmp_path / "runner")
    runner.start()
    move_aside(base)
    base.git("push", "-q", str(bare.path), "HEAD:refs/heads/main")
    runner.checkout("refs/heads/main")
    context = {
        "github.event.before": base.oid(SECOND),
        "github.event.after": base.head,
        "inputs.trust-root": base.oid(ROOT),
        "inputs.require-signed": "true",
    }
    variables = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main"}
    ran = runner.audit(context, variables)
    assert (ran.code, ran.outputs["ok"]) == (1, "false"), ran.log
    assert ran.kinds & {"moved-unsealed", "untracked-artifact"}


@pytest.mark.parametrize("has_ledger", [False, True], ids=["file", "file-and-ledger"])
def test_22_file_root_replays_old_signers(base: Sealed, tmp_path: Path, has_ledger: bool) -> None:
    """A revoked signer publishes a history that begins with the signers of before."""
    base.add_signer("mallory")
    before = base.change_signers("alice")
    hostile.remove_mallory(base)
    root = tmp_path / "trusted"
    root.write_bytes(base.blob(SIGNERS, "HEAD"))
    if has_ledger:
        (tmp_path / "trusted.wsum").write_bytes(base.blob(SIGNERS_LEDGER, "HEAD"))
    sealed.assert_holds(base, "--require-signed", root=str(root))
    base.git("checkout", "-q", "--orphan", "evil", before)
    at_once(base, "as if nothing had been revoked")
    base.generation(66.0, key="mallory")
    assert_refused(base, "HEAD", root=str(root))


def test_24_threshold_met_by_one_person_with_two_keys(base: Sealed) -> None:
    """One of two who have to agree changes the signers alone, by a second key of hers."""
    base.add_signer("bob")
    base.call("signers", "add", "alice@example.com", "carol")
    base.set_threshold(2)
    base.change_signers("alice")
    base.git("tag", "two")
    hostile.honest(base, root="two")
    base.add_signer("mallory")
    base.call("signers", "remove", "bob@example.com")
    base.add(SIGNERS)
    base.change_signers("alice", "carol")
    assert_refused(base, "HEAD", "signers-changed", root="two", was="two")
    assert MALLORY not in audit(base, root="two").report["signers"]


def test_25_directory_in_a_checkpoints_place(base: Sealed) -> None:
    """Without a key: a loader that takes folders finds the attacker's files."""
    base.git("rm", "-q", MODEL)
    base.write(f"{MODEL}/data.pkl", "evil\n")
    base.add(f"{MODEL}/data.pkl")
    at_once(base, "now a folder")
    assert_refused(base, "HEAD", "untracked-artifact", was=SECOND)


def test_28_other_attributes_change_the_checkout(base: Sealed) -> None:
    """Without a key: the blob is as sealed, and what a checkout writes is not."""
    attributes(base, f"{MODEL} text eol=crlf")
    at_once(base, "line endings")
    assert git_gives(base, "HEAD", MODEL) != text(2.0)
    assert_refused(base, "HEAD", "altered-checkout", was=SECOND)


def test_31_replace_refs(base: Sealed) -> None:
    """Whoever fetches refs/replace judges another commit than is checked out elsewhere."""
    base.put(66.0)
    at_once(base)
    base.git("replace", "HEAD", SECOND)
    assert_refused(base, "HEAD", "shallow", "content-mismatch", was=SECOND)


def test_36_macro_attribute(base: Sealed) -> None:
    """Without a key: the filter is taken off by a name for it."""
    attributes(base, "[attr]plain -filter", f"{MODEL} plain")
    stage(base, MODEL, EVIL)
    at_once(base)
    assert_refused(base, "HEAD", "untracked-artifact", "content-mismatch", was=SECOND)


def test_41_plain_rollback(base: Sealed) -> None:
    """Without a key: an old model with its old ledger."""
    base.take(ROOT, MODEL, LEDGER)
    at_once(base, "back")
    assert_refused(base, "HEAD", "ledger-rewritten", was=SECOND)


@pytest.mark.parametrize("first", [0, 1])
def test_43_criss_cross_rollback(base: Sealed, first: int) -> None:
    """Without a key: two merges of the same parents, with either tree, and a merge of those."""
    base.branch("old", ROOT)
    base.write("x", "x")
    base.add("x")
    old = at_once(base, "old")
    merges = (
        commit_of(base, SECOND, old, tree=SECOND),
        commit_of(base, old, SECOND, tree=old),
    )
    tip = commit_of(base, merges[first], merges[1 - first], tree=old)
    assert_refused(base, tip, "ledger-rewritten", was=SECOND)


@pytest.mark.parametrize("way", ["copied", "merged"])
def test_46_other_repository(base: Sealed, tmp_path: Path, way: str) -> None:
    """A model that the same signer sealed elsewhere, where there were no signers yet."""
    (tmp_path / "foreign").mkdir()
    foreign = Sealed(tmp_path / "foreign")
    foreign.git("init", "-q")
    foreign.track("*.safetensors")
    foreign.generation(66.0, name=NEW)
    assert b"repo=0000000" in foreign.ledger(NEW_LEDGER)
    if way == "merged":
        base.git("checkout", "-q", "--orphan", "other")
        base.git("rm", "-rqf", ".")
        stage(base, ".gitattributes", foreign.blob(".gitattributes"))
    for name in (NEW, NEW_LEDGER):
        stage(base, name, foreign.blob(name, "HEAD"))
    tip = at_once(base)
    if way == "merged":
        base.git("read-tree", SECOND)
        for name in (NEW, NEW_LEDGER):
            stage(base, name, foreign.blob(name, "HEAD"))
        tip = commit_of(base, tip, SECOND)
    assert_refused(base, tip, "bad-record", was=SECOND)


def test_49_cosign_lockout_threshold_over_8(chain: Sealed) -> None:
    """A threshold that no record can meet would close the signers for good."""
    for number in range(8):
        chain.call("key", "new", "--name", f"s{number}", "--no-passphrase")
        chain.add_signer(f"s{number}")
    main = chain.change_signers("alice")
    hostile.honest(chain)
    chain.set_threshold(9)
    # `seal` may refuse it as well; what is attacked is the audit.
    ledger = chain.blob(SIGNERS_LEDGER)
    chain.write(SIGNERS_LEDGER, hostile.appended(ledger, chain.blob(SIGNERS), "alice"))
    chain.add()
    at_once(chain, "nine")
    assert_refused(chain, "HEAD", "signers-changed", was=main)


def test_52_broken_ledger_laundered_in_two_pushes(base: Sealed) -> None:
    """Without a key: a ledger is broken and mended on a side branch, which comes in with it."""
    base.write(LEDGER, "WLEDGER 1\n")
    base.add(LEDGER)
    broken = at_once(base)
    mended = commit_of(base, broken, tree=SECOND)
    first = commit_of(base, SECOND, mended, tree=SECOND)
    base.put(66.0)
    tip = commit_of(base, broken, first)
    assert base.blob(LEDGER, tip) == b"WLEDGER 1\n"
    assert_refused(base, tip, "bad-record", "ledger-rewritten", "unsealed", was=first)


@pytest.mark.parametrize("order", ["reversed", "wtxt-last"])
def test_55_crooked_tree_hides_signers_change(two: Sealed, order: str) -> None:
    """One of two lets in a third by a tree in whose order git's pathspecs find no .wtxt."""
    two.add_signer("mallory")
    two.seal(SIGNERS, key="bob")
    tree = two.git("write-tree").decode().strip()
    straight = commit_of(two, "two", tree=tree)
    assert_refused(two, straight, "signers-changed", root="two", was="two")
    rows = entries(two, tree)
    if order == "reversed":
        rows.reverse()
    else:
        rows.sort(key=lambda row: row[1] == b".wtxt")
    assert rows != entries(two, tree)
    crooked = tree_of(two, rows)
    tip = two.git("commit-tree", "-p", "two", "-m", "c", crooked).decode().strip()
    assert_refused(two, tip, root="two", was="two", unjudged=True)


@pytest.mark.parametrize("act", ["move-aside", "prefix"])
def test_58_hooks_accept(base: Sealed, tmp_path: Path, act: str) -> None:
    """A contributor's hooks let through what the audit would find."""
    hooks.install(base.repository, LAUNCHER)
    base.git("config", "wtxtgit.trustRoot", ROOT)
    server = tmp_path / "server.git"
    base.git("init", "-q", "--bare", str(server))
    base.git("push", "-q", str(server), "main")
    if act == "move-aside":
        stage_move(base, MODEL, "old.safetensors")
        stops = [base.run("git", "commit", "-qm", "tidy up", ok=(0, 1)).returncode]
        at_once(base, "past the hook")
        attributes(base, f"{MODEL} -filter")
        stage(base, MODEL, EVIL)
    else:
        stops = []
        stage(base, DATA, b"WTXT = 1\nowned\n")
    stops.append(base.run("git", "commit", "-qm", "new", ok=(0, 1)).returncode)
    assert 1 in stops
    at_once(base, "past the hook")
    base.run("git", "push", "-q", str(server), "main", ok=(1,))
    assert sealed.assert_holds(base, SECOND)
