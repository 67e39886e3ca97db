"""Attacks on the signers: who is none, is none any more, or is only one of several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import hostile
from tests.e2e.hostile import (
    BEFORE,
    MALLORY,
    NEW,
    NEW_LEDGER,
    REVOKED,
    REWRITTEN,
    SECOND,
    UNTRUSTED,
    appended,
    assert_refused,
    at_once,
    attributes,
    audit,
    commit_of,
    put_copy,
    records,
    stage,
    stage_id,
    unstage,
)
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    ROOT,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    assert_holds,
    text,
)

pytestmark = pytest.mark.slow

CHANGED = "signers-changed"
NO_CHANGE = (CHANGED, REWRITTEN, *UNTRUSTED)


def listed(repo: Sealed, revision: str, *names: str, threshold: int | None = None) -> bytes:
    """A signers file with more people in it."""
    made = repo.blob(SIGNERS, revision)
    for name in names:
        public = (Path.home() / f".config/wtxtgit/keys/{name}.pub").read_text().split()
        made += f"{name}@example.com {public[0]} {public[1]}\n".encode()
    if threshold is not None:
        rows = [row for row in made.splitlines(keepends=True) if b"threshold: " not in row]
        made = f"# threshold: {threshold}\n".encode() + b"".join(rows)
    return made


def stage_signers(repo: Sealed, content: bytes, *keys: str, after: str = "HEAD") -> None:
    """Stage signers, and a record of theirs by these keys."""
    stage(repo, SIGNERS, content)
    stage(repo, SIGNERS_LEDGER, appended(repo.blob(SIGNERS_LEDGER, after), content, *keys))


def stage_model(repo: Sealed, *keys: str, after: str = "HEAD", number: float = 66.0) -> None:
    """Stage a generation by these keys."""
    stage(repo, MODEL, text(number))
    stage(repo, LEDGER, appended(repo.blob(LEDGER, after), text(number), *keys))


def take_signers(repo: Sealed, revision: str) -> None:
    for path in (SIGNERS, SIGNERS_LEDGER):
        stage(repo, path, repo.blob(path, revision))


class TestStrangers:
    """A stranger's model is taken, or the stranger becomes one of the signers."""

    def test_a_model(self, base: Sealed) -> None:
        stage_model(base, "mallory")
        assert_refused(base, at_once(base), *UNTRUSTED, was=SECOND)

    def test_a_new_model(self, base: Sealed) -> None:
        base.generation(66.0, name=NEW, key="mallory")
        assert_refused(base, "HEAD", *UNTRUSTED, was=SECOND)

    def test_added_by_nobody(self, base: Sealed) -> None:
        stage(base, SIGNERS, listed(base, SECOND, "mallory"))
        stage_model(base, "mallory")
        assert_refused(base, at_once(base), CHANGED, was=SECOND)

    def test_added_and_sealed_by_themselves(self, base: Sealed) -> None:
        stage_signers(base, listed(base, SECOND, "mallory"), "mallory")
        assert_refused(base, at_once(base), CHANGED, was=SECOND)
        base.generation(66.0, key="mallory")
        assert_refused(base, "HEAD", CHANGED, was=SECOND)
        assert_refused(base, "HEAD", *UNTRUSTED, was="HEAD~1")

    def test_added_on_a_branch_from_the_root(self, base: Sealed) -> None:
        """And that branch is the first parent of the merge."""
        base.branch("evil", ROOT)
        stage_signers(base, listed(base, ROOT, "mallory"), "mallory")
        at_once(base)
        base.generation(66.0, key="mallory")
        for parents in (("evil", SECOND), (SECOND, "evil"), (ROOT, "evil", SECOND)):
            assert_refused(base, commit_of(base, *parents, tree="evil"), *NO_CHANGE, was=SECOND)

    def test_the_only_ones_of_an_orphan(self, base: Sealed) -> None:
        """Another history brings signers of its own, and models that they sealed."""
        base.git("checkout", "-q", "--orphan", "evil")
        base.git("rm", "-rqf", ".")
        base.track("*.safetensors")
        base.add_signer("mallory")
        base.seal(SIGNERS, key="mallory")
        base.generation(66.0, name=NEW, key="mallory")
        base.git("read-tree", SECOND)
        put_copy(base, "evil", NEW, NEW)
        for parents in ((SECOND, "evil"), ("evil", SECOND)):
            assert_refused(base, commit_of(base, *parents), was=SECOND)
            tip = commit_of(base, *parents, tree="evil")
            assert_refused(base, tip, CHANGED, REWRITTEN, was=SECOND)
        assert_refused(base, "evil", "bad-root")

    def test_a_change_that_a_signers_model_follows(self, base: Sealed) -> None:
        """What is honest on top of it does not make it good."""
        stage(base, SIGNERS, listed(base, SECOND, "mallory"))
        base.write(SIGNERS, base.blob(SIGNERS))
        at_once(base)
        base.generation(3.0)
        base.generation(66.0, name=OTHER, key="mallory")
        assert_refused(base, "HEAD", CHANGED, was=SECOND)
        assert MALLORY not in audit(base).report["signers"]

    def test_a_signature_of_a_signers_other_record(self, base: Sealed) -> None:
        """The line that signed generation 2, below the stranger's generation 3."""
        head, rows = records(base.blob(LEDGER))
        made = hostile.record(base.blob(LEDGER), text(66.0))
        stage(base, MODEL, text(66.0))
        stage(base, LEDGER, hostile.joined(head, [*rows, [*made, rows[-1][-1]]]))
        assert_refused(base, at_once(base), "bad-signature", was=SECOND)

    def test_a_signature_under_a_signers_keyid(self, base: Sealed) -> None:
        """A keyid is a hint: the stranger's signature says that it is alice's."""
        made = hostile.record(base.blob(LEDGER), text(66.0), "mallory")
        theirs = records(base.blob(LEDGER))[1][-1][-1].split(b"keyid=")[1]
        mine = made[-1].split(b"keyid=")[1]
        stage(base, MODEL, text(66.0))
        lines = b"".join(made).replace(mine, theirs)
        stage(base, LEDGER, base.blob(LEDGER) + lines)
        assert_refused(base, at_once(base), "bad-signature", was=SECOND)

    def test_the_same_principal_with_another_key(self, base: Sealed) -> None:
        """Who is called alice is not alice."""
        made = listed(base, SECOND, "mallory").replace(b"mallory@", b"alice@")
        stage_signers(base, made, "mallory")
        stage_model(base, "mallory")
        assert_refused(base, at_once(base), CHANGED, was=SECOND)

    def test_before_the_first_signers(self, tmp_path: Path, keys: None) -> None:
        """Where nobody was trusted yet, a stranger's branch comes first in the merge."""
        (tmp_path / "late").mkdir()
        late = Sealed(tmp_path / "late")
        late.git("init", "-q")
        late.track("*.safetensors")
        before = late.commit("no signers")
        late.add_signer("alice")
        late.put(1.0)
        late.seal()
        main = late.commit("sealed")
        hostile.honest(late, root=None)
        late.branch("evil", before)
        late.add_signer("mallory")
        late.put(66.0)
        late.seal(key="mallory")
        evil = late.commit("mine")
        for parents in ((evil, main), (main, evil)):
            tip = commit_of(late, *parents, tree=evil)
            assert_refused(late, tip, *NO_CHANGE, root=main, was=main)


class TestTheFile:
    """The list itself, and what stands in its place."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda content: content.replace(b"\n", b"\r\n"),
            lambda content: b"\xef\xbb\xbf" + content,
            lambda content: content + b"# mallory@example.com is fine\n",
            lambda content: content.replace(b"threshold: 1", b"threshold: 0"),
            lambda _: b"",
            lambda _: b"# nobody\n",
            lambda _: b"\xff\xfe\n",
            lambda content: content + b"mallory@example.com ssh-ed25519 AAAA\n",
        ],
        ids=["crlf", "bom", "comment", "zero", "empty", "nobody", "binary", "bad-key"],
    )
    def test_changed_by_nobody(self, base: Sealed, change: Callable[[bytes], bytes]) -> None:
        stage(base, SIGNERS, change(base.blob(SIGNERS)))
        assert_refused(base, at_once(base), CHANGED, "content-mismatch", was=SECOND)
        stage_model(base, "mallory")
        assert_refused(base, at_once(base), was=SECOND)

    def test_deleted(self, base: Sealed) -> None:
        """Where nobody is trusted, anybody's seal would do."""
        unstage(base, SIGNERS, SIGNERS_LEDGER)
        assert_refused(base, at_once(base), CHANGED, "ledger-removed", was=SECOND)
        stage_model(base, "mallory")
        assert_refused(base, at_once(base), *UNTRUSTED, was=SECOND)

    def test_deleted_and_begun_anew(self, base: Sealed) -> None:
        unstage(base, SIGNERS, SIGNERS_LEDGER)
        (base.path / SIGNERS_LEDGER).unlink()
        (base.path / SIGNERS).unlink()
        at_once(base)
        base.add_signer("mallory")
        base.seal(SIGNERS, key="mallory")
        at_once(base)
        base.generation(66.0, key="mallory")
        assert_refused(base, "HEAD", CHANGED, REWRITTEN, was=SECOND)

    def test_deleted_with_a_sealed_deletion(self, two: Sealed) -> None:
        """By one of two: then nobody would be trusted."""
        unstage(two, SIGNERS)
        ledger = two.blob(SIGNERS_LEDGER)
        stage(two, SIGNERS_LEDGER, appended(ledger, b"", "alice", build="deleted"))
        assert_refused(two, at_once(two), CHANGED, root="two", was="two")
        stage(two, SIGNERS_LEDGER, appended(ledger, b"", "alice", "bob", build="deleted"))
        assert_refused(two, at_once(two), CHANGED, root="two", was="two")

    def test_a_link(self, base: Sealed) -> None:
        unstage(base, SIGNERS)
        stage(base, SIGNERS, b"../people", "120000")
        stage(base, "people", listed(base, SECOND, "mallory"))
        assert_refused(base, at_once(base), CHANGED, "untracked-artifact", was=SECOND)

    def test_a_link_that_says_the_list(self, base: Sealed) -> None:
        """The very blob, as a link's target."""
        stage(base, SIGNERS, base.blob(SIGNERS), "120000")
        assert_refused(base, at_once(base), CHANGED, "untracked-artifact", was=SECOND)

    @pytest.mark.parametrize("path", [SIGNERS, SIGNERS_LEDGER, ".wtxt"])
    def test_a_folder_or_a_file_of_its_folder(self, base: Sealed, path: str) -> None:
        unstage(base, path)
        stage(base, f"{path}/x" if path != ".wtxt" else path, listed(base, SECOND, "mallory"))
        kinds = (CHANGED, "ledger-removed", "untracked-artifact", "bad-record")
        assert_refused(base, at_once(base), *kinds, was=SECOND)

    @pytest.mark.parametrize("mode", ["120000", "160000"])
    def test_its_folder_is_none(self, base: Sealed, mode: str) -> None:
        unstage(base, ".wtxt")
        oid = base.head if mode == "160000" else hostile.store(base, b"evil")
        stage_id(base, ".wtxt", oid, mode)
        stage(base, "evil/signers", listed(base, SECOND, "mallory"))
        assert_refused(base, at_once(base), CHANGED, "ledger-removed", was=SECOND)

    @pytest.mark.parametrize(
        "line",
        [
            "eol=crlf",
            "text eol=crlf",
            "text=auto",
            "ident",
            "working-tree-encoding=UTF-16",
            "export-subst",
            "filter=lfs",
        ],
    )
    def test_other_attributes(self, base: Sealed, line: str) -> None:
        """Hooks and people read the file of the work tree, which is another one then."""
        attributes(base, f"{SIGNERS} {line}")
        assert_refused(base, at_once(base), was=SECOND)


class TestRevoked:
    """A key that was taken away: what it signs from then on comes in as if it came before."""

    @pytest.fixture
    def late(self, revoked: Sealed) -> Sealed:
        """A branch from before the removal, where mallory seals after it; tag `late`."""
        revoked.branch("late", BEFORE)
        revoked.generation(66.0, key="mallory")
        revoked.git("tag", "-f", "evil")
        revoked.switch("main")
        return revoked

    def test_on_main(self, revoked: Sealed) -> None:
        revoked.generation(66.0, key="mallory")
        assert_refused(revoked, "HEAD", *UNTRUSTED, was=REVOKED)

    def test_a_new_model(self, revoked: Sealed) -> None:
        revoked.generation(66.0, name=NEW, key="mallory")
        assert_refused(revoked, "HEAD", *UNTRUSTED, was=REVOKED)

    @pytest.mark.parametrize("order", [0, 1])
    def test_merged(self, late: Sealed, order: int) -> None:
        late.git("read-tree", REVOKED)
        put_copy(late, "evil", MODEL, MODEL)
        parents = [REVOKED, "evil"][:: -1 if order else 1]
        assert_refused(late, commit_of(late, *parents), *UNTRUSTED, was=REVOKED)

    @pytest.mark.parametrize("first", [BEFORE, ROOT])
    def test_merged_by_an_octopus(self, late: Sealed, first: str) -> None:
        late.git("read-tree", REVOKED)
        put_copy(late, "evil", MODEL, MODEL)
        tip = commit_of(late, first, "evil", REVOKED)
        assert_refused(late, tip, *UNTRUSTED, was=REVOKED)

    def test_cherry_picked(self, late: Sealed) -> None:
        late.git("cherry-pick", "evil")
        assert_refused(late, "HEAD", *UNTRUSTED, was=REVOKED)

    def test_squashed(self, late: Sealed) -> None:
        late.git("merge", "-q", "--squash", "evil")
        at_once(late)
        assert_refused(late, "HEAD", *UNTRUSTED, was=REVOKED)

    def test_rebased(self, late: Sealed) -> None:
        late.git("checkout", "-q", "late")
        late.git("rebase", "-q", "main")
        assert_refused(late, "HEAD", *UNTRUSTED, was=REVOKED)

    def test_in_two_merges(self, late: Sealed) -> None:
        """An old commit takes it in first, main takes that."""
        half = commit_of(late, BEFORE, "evil", tree="evil")
        late.git("read-tree", REVOKED)
        put_copy(late, "evil", MODEL, MODEL)
        for parents in ((half, REVOKED), (REVOKED, half), (BEFORE, half, REVOKED)):
            assert_refused(late, commit_of(late, *parents), *UNTRUSTED, was=REVOKED)

    def test_after_a_merge_that_drops_it(self, late: Sealed) -> None:
        """First merged and put aside, taken up by the next commit, which adds no parent."""
        dropped = commit_of(late, REVOKED, "evil", tree=REVOKED)
        late.git("read-tree", REVOKED)
        put_copy(late, "evil", MODEL, MODEL)
        assert_refused(late, commit_of(late, dropped), *UNTRUSTED, was=REVOKED)
        assert_refused(late, commit_of(late, dropped), was=dropped)

    def test_from_an_orphan(self, revoked: Sealed) -> None:
        """Another history begins with the tree that trusted mallory."""
        orphan = commit_of(revoked, tree=BEFORE)
        revoked.branch("orphan", orphan)
        revoked.generation(66.0, key="mallory")
        revoked.git("read-tree", REVOKED)
        put_copy(revoked, "orphan", MODEL, MODEL)
        for parents in ((REVOKED, "orphan"), ("orphan", REVOKED)):
            tip = commit_of(revoked, *parents)
            assert_refused(revoked, tip, *UNTRUSTED, was=REVOKED)

    def test_with_the_signers_of_before(self, revoked: Sealed) -> None:
        """File and ledger of the signers go back, and so does the trust in mallory."""
        take_signers(revoked, BEFORE)
        assert_refused(revoked, at_once(revoked), CHANGED, REWRITTEN, was=REVOKED)
        stage_model(revoked, "mallory")
        assert_refused(revoked, at_once(revoked), CHANGED, REWRITTEN, was=REVOKED)

    def test_with_the_file_of_before_alone(self, revoked: Sealed) -> None:
        stage(revoked, SIGNERS, revoked.blob(SIGNERS, BEFORE))
        stage_model(revoked, "mallory")
        assert_refused(revoked, at_once(revoked), CHANGED, was=REVOKED)

    def test_with_the_signers_of_before_in_a_merge(self, late: Sealed) -> None:
        for parents in ((BEFORE, "evil", REVOKED), ("evil", REVOKED), (REVOKED, "evil")):
            tip = commit_of(late, *parents, tree="evil")
            assert_refused(late, tip, CHANGED, REWRITTEN, was=REVOKED)

    def test_puts_itself_back(self, revoked: Sealed) -> None:
        stage_signers(revoked, listed(revoked, REVOKED, "mallory"), "mallory")
        assert_refused(revoked, at_once(revoked), CHANGED, was=REVOKED)

    def test_puts_itself_back_from_before(self, revoked: Sealed) -> None:
        """Sealed by a key of the signers that were, after the ledger that was."""
        revoked.branch("late", BEFORE)
        made = listed(revoked, BEFORE).replace(b"alice@example.com ", b"# ")
        stage_signers(revoked, made, "mallory")
        evil = at_once(revoked)
        for parents in ((REVOKED, evil), (evil, REVOKED), (BEFORE, evil, REVOKED)):
            tip = commit_of(revoked, *parents, tree=evil)
            assert_refused(revoked, tip, CHANGED, REWRITTEN, was=REVOKED)

    def test_countersigned_by_itself(self, late: Sealed) -> None:
        """The record stands twice for mallory and once for nobody else."""
        late.git("read-tree", REVOKED)
        stage(late, MODEL, text(66.0))
        stage(late, LEDGER, appended(late.blob(LEDGER, REVOKED), text(66.0), "mallory", "carol"))
        assert_refused(late, commit_of(late, REVOKED, "evil"), *UNTRUSTED, was=REVOKED)

    @pytest.mark.parametrize("with_model", [False, True], ids=["after", "in-one-commit"])
    def test_the_removal_is_made_again_behind_it(self, late: Sealed, with_model: bool) -> None:
        """Mallory seals first, and then does what alice did: puts mallory out.

        On that branch the record was there when the new signers came, so it stands under
        them; the branch is merged, and main takes over what stands there.
        """
        late.branch("pr", BEFORE if with_model else "evil")
        take_signers(late, REVOKED)
        if with_model:
            put_copy(late, "evil", MODEL, MODEL)
        again = at_once(late, "mallory is out")
        late.git("read-tree", REVOKED)
        put_copy(late, "evil", MODEL, MODEL)
        for parents in ((REVOKED, again), (again, REVOKED), (BEFORE, again, REVOKED)):
            assert_refused(late, commit_of(late, *parents), *UNTRUSTED, was=REVOKED)

    def test_the_removal_is_made_again_on_an_orphan(self, revoked: Sealed) -> None:
        """The same on a history of its own, from the root's tree on."""
        revoked.branch("orphan", commit_of(revoked, tree=BEFORE))
        revoked.generation(66.0, key="mallory")
        take_signers(revoked, REVOKED)
        at_once(revoked)
        revoked.git("read-tree", REVOKED)
        put_copy(revoked, "orphan", MODEL, MODEL)
        for parents in ((REVOKED, "orphan"), ("orphan", REVOKED)):
            tip = commit_of(revoked, *parents)
            assert_refused(revoked, tip, *UNTRUSTED, was=REVOKED)

    def test_a_move(self, revoked: Sealed) -> None:
        """A sealed move is a record like any other."""
        revoked.branch("late", BEFORE)
        hostile.sealed_move(revoked, MODEL, NEW, key="mallory")
        evil = at_once(revoked)
        revoked.git("read-tree", REVOKED)
        unstage(revoked, MODEL, LEDGER)
        put_copy(revoked, evil, NEW, NEW)
        for parents in ((REVOKED, evil), (evil, REVOKED)):
            tip = commit_of(revoked, *parents)
            assert_refused(revoked, tip, *UNTRUSTED, "ledger-removed", was=REVOKED)

    def test_a_deletion(self, revoked: Sealed) -> None:
        """A deletion as well: it lets go of what the others have sealed."""
        revoked.branch("late", BEFORE)
        unstage(revoked, MODEL)
        ledger = appended(revoked.blob(LEDGER), b"", "mallory", build="deleted")
        stage(revoked, LEDGER, ledger)
        evil = at_once(revoked)
        revoked.git("read-tree", REVOKED)
        unstage(revoked, MODEL)
        stage(revoked, LEDGER, ledger)
        for parents in ((REVOKED, evil), (evil, REVOKED)):
            tip = commit_of(revoked, *parents)
            assert_refused(revoked, tip, *UNTRUSTED, was=REVOKED)

    def test_that_settles_a_fork(self, revoked: Sealed) -> None:
        """Main and a branch went on; the record that says which one counts is mallory's."""
        revoked.branch("pr", BEFORE)
        revoked.generation(5.0)
        revoked.switch("main")
        main = revoked.generation(6.0)
        revoked.git("read-tree", main)
        stage(revoked, MODEL, text(5.0))
        stage(revoked, LEDGER, appended(revoked.ledger(LEDGER, "pr"), text(5.0), "mallory"))
        for parents in ((main, "pr"), ("pr", main), (BEFORE, "pr", main)):
            tip = commit_of(revoked, *parents)
            assert_refused(revoked, tip, *UNTRUSTED, REWRITTEN, was=main)

    def test_a_generation_between_two_honest_ones(self, late: Sealed) -> None:
        """Alice seals on top of it, on a branch that she had from mallory."""
        late.branch("pr", "evil")
        late.generation(67.0)
        late.git("read-tree", REVOKED)
        put_copy(late, "pr", MODEL, MODEL)
        for parents in ((REVOKED, "pr"), ("pr", REVOKED)):
            assert_refused(late, commit_of(late, *parents), *UNTRUSTED, was=REVOKED)


class TestThreshold:
    """Fewer than have to agree change who the signers are."""

    def assert_unchanged(self, repo: Sealed, tip: str) -> None:
        assert_refused(repo, tip, CHANGED, root="two", was="two")
        assert MALLORY not in audit(repo, tip, root="two").report["signers"]

    @pytest.mark.parametrize("who", [("alice",), ("bob",), ("bob", "mallory"), ()], ids=str)
    def test_too_few(self, two: Sealed, who: tuple[str, ...]) -> None:
        stage_signers(two, listed(two, "two", "mallory"), *who)
        self.assert_unchanged(two, at_once(two))

    def test_lowered_first(self, two: Sealed) -> None:
        stage_signers(two, listed(two, "two", threshold=1), "bob")
        at_once(two)
        stage_signers(two, listed(two, "HEAD", "mallory"), "bob")
        self.assert_unchanged(two, at_once(two))

    def test_as_before_it_was_raised(self, two: Sealed) -> None:
        """A branch from before asks for one: bob seals there, and main takes it."""
        two.branch("late", SECOND)
        two.add_signer("bob")
        two.change_signers("alice")
        stage_signers(two, listed(two, "HEAD", "mallory"), "bob")
        evil = at_once(two)
        for parents in ((evil, "two"), ("two", evil), (SECOND, evil, "two")):
            self.assert_unchanged(two, commit_of(two, *parents, tree=evil))

    def test_two_halves_on_two_branches(self, two: Sealed) -> None:
        """Each signed another list; put together no list has two."""
        one, other = listed(two, "two", "mallory"), listed(two, "two", "carol")
        ledger = two.blob(SIGNERS_LEDGER)
        first = hostile.record(ledger, one, "alice")
        second = hostile.record(ledger, other, "bob")
        stage(two, SIGNERS, one)
        lines = [
            *first[:2],
            *sorted((first[2], second[2]), key=lambda row: row.split(b"keyid=")[1]),
        ]
        stage(two, SIGNERS_LEDGER, ledger + b"".join(lines))
        assert_refused(two, at_once(two), CHANGED, "bad-signature", root="two", was="two")

    def test_two_records_of_one_list(self, two: Sealed) -> None:
        """Alice's record of it, and then bob's of the same: neither has two."""
        made = listed(two, "two", "mallory")
        ledger = appended(two.blob(SIGNERS_LEDGER), made, "alice")
        stage(two, SIGNERS, made)
        stage(two, SIGNERS_LEDGER, appended(ledger, made, "bob"))
        self.assert_unchanged(two, at_once(two))

    def test_one_key_under_two_names(self, base: Sealed) -> None:
        """One signature would be of two people."""
        made = listed(base, SECOND, "bob", threshold=2)
        alice = next(row for row in made.splitlines() if row.startswith(b"alice@"))
        made += alice.replace(b"alice@", b"alice.work@") + b"\n"
        stage_signers(base, made, "alice")
        main = at_once(base)
        stage_signers(base, listed(base, main, "mallory"), "alice")
        assert_refused(base, at_once(base), CHANGED, root=SECOND)
        assert MALLORY not in audit(base).report["signers"]

    @pytest.mark.parametrize("number", [0, 2, 9, 100])
    def test_that_nobody_could_meet(self, base: Sealed, number: int) -> None:
        """By the signer: nobody could change the signers again; or everybody."""
        stage_signers(base, listed(base, SECOND, threshold=number), "alice")
        assert_refused(base, at_once(base), CHANGED, "content-mismatch", was=SECOND)

    def test_of_two_where_one_has_both_keys(self, base: Sealed) -> None:
        """Two keys and one person: at most one can agree."""
        made = listed(base, SECOND, "bob", threshold=2).replace(b"bob@", b"alice@")
        stage_signers(base, made, "alice")
        assert_refused(base, at_once(base), CHANGED, was=SECOND)

    def test_a_junk_line_more(self, base: Sealed) -> None:
        """Two thresholds in one list: two readers may take either."""
        made = listed(base, SECOND, "bob", threshold=2) + b"# threshold: 1\n"
        stage_signers(base, made, "alice")
        main = at_once(base)
        stage_signers(base, made + listed(base, SECOND, "mallory").splitlines()[-1] + b"\n", "bob")
        evil = at_once(base)
        assert_refused(base, evil, CHANGED, root=SECOND)
        assert main != evil

    def test_that_the_next_signers_are_not_asked_for(self, two: Sealed) -> None:
        """Carol comes in by two; then she and mallory, whom she brings, outvote nobody."""
        two.add_signer("carol")
        main = two.change_signers("alice", "bob")
        hostile.honest(two, root="two")
        made = listed(two, main, "mallory")
        stage_signers(two, made, "carol", "mallory")
        assert_refused(two, at_once(two), CHANGED, root="two", was=main)


class TestDiverged:
    """Signers who changed on two branches: what joins them needs those of both."""

    @pytest.fixture
    def diverged(self, base: Sealed) -> Sealed:
        """Main took bob away; an older branch took alice away. Tags `main-s`, `side-s`."""
        base.add_signer("bob")
        fork = base.change_signers("alice")
        base.call("signers", "remove", "bob@example.com")
        base.add(SIGNERS)
        base.change_signers("alice")
        base.git("tag", "main-s")
        base.branch("side", fork)
        base.call("signers", "remove", "alice@example.com")
        base.add_signer("mallory")
        base.change_signers("bob")
        base.git("tag", "side-s")
        return base

    def test_the_side_takes_main_over(self, diverged: Sealed) -> None:
        for parents in (("side-s", "main-s"), ("main-s", "side-s")):
            tip = commit_of(diverged, *parents, tree="side-s")
            assert_refused(diverged, tip, CHANGED, REWRITTEN, was="main-s")

    @pytest.mark.parametrize("key", ["bob", "mallory"])
    def test_a_record_that_joins_them(self, diverged: Sealed, key: str) -> None:
        """By one who is trusted on the side alone."""
        diverged.git("read-tree", "side-s")
        stage_signers(diverged, diverged.blob(SIGNERS, "side-s"), key, after="side-s")
        for parents in (("side-s", "main-s"), ("main-s", "side-s")):
            tip = commit_of(diverged, *parents)
            assert_refused(diverged, tip, CHANGED, REWRITTEN, was="main-s")

    @pytest.mark.parametrize("key", ["bob", "mallory"])
    def test_a_model_of_one_whom_only_the_side_trusts(self, diverged: Sealed, key: str) -> None:
        diverged.git("read-tree", "main-s")
        stage_model(diverged, key, after="main-s")
        for parents in (("side-s", "main-s"), ("main-s", "side-s")):
            tip = commit_of(diverged, *parents)
            assert_refused(diverged, tip, *UNTRUSTED, was="main-s")

    def test_a_criss_cross_of_both(self, diverged: Sealed) -> None:
        one = commit_of(diverged, "main-s", "side-s", tree="main-s")
        other = commit_of(diverged, "side-s", "main-s", tree="side-s")
        diverged.git("read-tree", "side-s")
        stage_model(diverged, "mallory", after="side-s")
        for parents in ((one, other), (other, one)):
            tip = commit_of(diverged, *parents)
            assert_refused(diverged, tip, CHANGED, *UNTRUSTED, was="main-s")


class TestFileRoots:
    """A signers file as the root: no history can bring other ones."""

    def given(self, repo: Sealed, folder: Path, revision: str, *, has_ledger: bool) -> str:
        root = folder / "trusted"
        root.write_bytes(repo.blob(SIGNERS, revision))
        if has_ledger:
            (folder / "trusted.wsum").write_bytes(repo.blob(SIGNERS_LEDGER, revision))
        return str(root)

    @pytest.mark.parametrize("has_ledger", [False, True])
    def test_an_old_record_of_the_signers_above(
        self, base: Sealed, tmp_path: Path, has_ledger: bool
    ) -> None:
        """Of today's list, alice and nobody else: an old record let mallory in from there."""
        base.add_signer("mallory")
        before = base.change_signers("alice")
        gone = hostile.remove_mallory(base)
        root = self.given(base, tmp_path, gone, has_ledger=has_ledger)
        assert_holds(base, "--require-signed", root=root)
        base.branch("evil", before)
        base.generation(66.0, key="mallory")
        assert_refused(base, "HEAD", root=root)
        assert MALLORY not in audit(base, root=root).report["signers"]

    @pytest.mark.parametrize("has_ledger", [False, True])
    def test_mallorys_own_history(self, base: Sealed, tmp_path: Path, has_ledger: bool) -> None:
        root = self.given(base, tmp_path, SECOND, has_ledger=has_ledger)
        base.git("checkout", "-q", "--orphan", "evil")
        base.git("rm", "-rqf", ".")
        base.track("*.safetensors")
        base.add_signer("mallory")
        base.put(66.0)
        base.seal(key="mallory")
        base.commit("mine")
        assert_refused(base, "HEAD", root=root)

    @pytest.mark.parametrize("has_ledger", [False, True])
    def test_a_history_without_signers(
        self, base: Sealed, tmp_path: Path, has_ledger: bool
    ) -> None:
        """There is nobody to ask; the file says who is."""
        root = self.given(base, tmp_path, SECOND, has_ledger=has_ledger)
        base.git("checkout", "-q", "--orphan", "evil")
        base.git("rm", "-rqf", ".")
        base.track("*.safetensors")
        base.put(66.0)
        base.commit("mine")
        assert_refused(base, "HEAD", root=root)

    def test_a_ledger_beside_it_that_is_of_another_list(
        self, revoked: Sealed, tmp_path: Path
    ) -> None:
        """What is beside the root has to be its own, or the root is none."""
        root = self.given(revoked, tmp_path, REVOKED, has_ledger=False)
        (tmp_path / "trusted.wsum").write_bytes(revoked.blob(SIGNERS_LEDGER, BEFORE))
        said = audit(revoked, root=root)
        assert said.code != 0

    def test_of_the_repository_itself(self, base: Sealed) -> None:
        """A file that a branch brings is not taken for a missing tag's commit."""
        base.write("v9", listed(base, SECOND, "mallory"))
        base.add("v9")
        base.generation(66.0, key="mallory")
        assert audit(base, root="v9").code == 5


def test_a_new_model_of_a_signer_of_elsewhere(base: Sealed, tmp_path: Path) -> None:
    """The same person's key, in another repository with signers of its own."""
    (tmp_path / "foreign").mkdir()
    foreign = Sealed(tmp_path / "foreign")
    foreign.git("init", "-q")
    foreign.track("*.safetensors")
    for name in ("bob", "alice"):
        foreign.add_signer(name)
    foreign.put(66.0, name=NEW)
    foreign.seal()
    foreign.commit()
    for name in (NEW, NEW_LEDGER):
        stage(base, name, foreign.blob(name, "HEAD"))
    assert_refused(base, at_once(base), "bad-record", was=SECOND)
