"""Attacks on places: a sealed model stands where it was sealed for, and nothing else does there."""

from __future__ import annotations

import json

import pytest

from tests.e2e import hostile
from tests.e2e.hostile import (
    DATA,
    DATA_LEDGER,
    NEW,
    NEW_LEDGER,
    REWRITTEN,
    SECOND,
    UNTRUSTED,
    appended,
    assert_refused,
    at_once,
    attributes,
    commit_of,
    put_copy,
    record,
    records,
    sealed_move,
    stage,
    stage_id,
    stage_move,
    unstage,
)
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    ROOT,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    assert_holds,
    checkpoint,
    text,
)
from wtxtgit.filter.clean import text_of
from wtxtgit.model.array import Array, Meta, Snapshot
from wtxtgit.text.grammar import CAP
from wtxtgit.text.write import TextWriter

pytestmark = pytest.mark.slow

THIRD = "third.safetensors"
MOVED = ("moved-unsealed", "bad-record", REWRITTEN)
EVIL = checkpoint(66.0)


class TestUnsealedMoves:
    """Without a key: what was sealed for one path is loaded from another."""

    def test_of_one(self, base: Sealed) -> None:
        stage_move(base, MODEL, NEW)
        assert_refused(base, at_once(base), "moved-unsealed", was=SECOND)

    def test_into_a_folder_without_a_filter(self, base: Sealed) -> None:
        attributes(base, "* -filter", file="attic/.gitattributes")
        stage_move(base, MODEL, f"attic/{MODEL}")
        assert_refused(base, at_once(base), "moved-unsealed", was=SECOND)

    def test_of_a_whole_folder(self, base: Sealed) -> None:
        base.generation(5.0, name="a/x.safetensors")
        main = hostile.honest(base)
        base.git("mv", "a", "b")
        assert_refused(base, at_once(base), "moved-unsealed", was=main)

    def test_two_change_places_in_one_commit(self, base: Sealed) -> None:
        for old, new in ((MODEL, THIRD), (OTHER, MODEL), (THIRD, OTHER)):
            stage_move(base, old, new)
        assert base.blob(MODEL, "") == text(1.0)
        assert_refused(base, at_once(base), *MOVED, was=SECOND)

    def test_two_change_places_in_three_commits(self, base: Sealed) -> None:
        for old, new in ((MODEL, THIRD), (OTHER, MODEL), (THIRD, OTHER)):
            stage_move(base, old, new)
            at_once(base)
        assert_refused(base, "HEAD", *MOVED, was=SECOND)
        assert_refused(base, "HEAD", *MOVED, was="HEAD~1")

    def test_two_change_places_in_a_merge(self, base: Sealed) -> None:
        """Each branch moves one away; the merge puts each where the other was."""
        stage_move(base, MODEL, THIRD)
        one = at_once(base)
        base.git("reset", "-q", "--hard", SECOND)
        stage_move(base, OTHER, NEW)
        two = at_once(base)
        put_copy(base, SECOND, MODEL, OTHER)
        put_copy(base, SECOND, OTHER, MODEL)
        unstage(base, NEW, NEW_LEDGER)
        assert_refused(base, commit_of(base, one, two), *MOVED, was=SECOND)

    def test_the_contents_alone_change_places(self, base: Sealed) -> None:
        stage(base, MODEL, text(1.0))
        stage(base, OTHER, text(2.0))
        assert_refused(base, at_once(base), "content-mismatch", was=SECOND)

    def test_onto_another_one(self, base: Sealed) -> None:
        stage_move(base, OTHER, MODEL)
        assert_refused(base, at_once(base), *MOVED, was=SECOND)

    def test_a_copy(self, base: Sealed) -> None:
        put_copy(base, SECOND, MODEL, NEW)
        assert_refused(base, at_once(base), *MOVED, was=SECOND)

    def test_a_copy_of_an_old_one(self, base: Sealed) -> None:
        put_copy(base, ROOT, MODEL, NEW)
        assert_refused(base, at_once(base), *MOVED, was=SECOND)

    def test_a_copy_whose_original_is_deleted_later(self, base: Sealed) -> None:
        put_copy(base, SECOND, MODEL, NEW)
        at_once(base)
        unstage(base, MODEL, LEDGER)
        assert_refused(base, at_once(base), *MOVED, was=SECOND)

    def test_away_and_back_to_an_old_generation(self, base: Sealed) -> None:
        stage_move(base, MODEL, NEW)
        at_once(base)
        unstage(base, NEW, NEW_LEDGER)
        put_copy(base, ROOT, MODEL, MODEL)
        assert_refused(base, at_once(base), REWRITTEN, was=SECOND)

    def test_without_the_ledger(self, base: Sealed) -> None:
        base.git("mv", MODEL, NEW)
        assert_refused(base, at_once(base), "unsealed", was=SECOND)

    def test_of_the_ledger_alone(self, base: Sealed) -> None:
        base.git("mv", LEDGER, NEW_LEDGER)
        assert_refused(base, at_once(base), "ledger-removed", "unsealed", was=SECOND)

    def test_with_a_filter_taken_off_first(self, base: Sealed) -> None:
        attributes(base, f"{MODEL} -filter")
        at_once(base)
        stage(base, MODEL, EVIL)
        assert_refused(base, at_once(base), "untracked-artifact", "content-mismatch", was=SECOND)

    def test_renamed_by_an_ending_that_is_none_of_ours(self, base: Sealed) -> None:
        """Out of the filter by its name; the old name is free for another file."""
        stage_move(base, MODEL, "model.bin")
        assert_refused(base, at_once(base), "moved-unsealed", was=SECOND)
        stage(base, MODEL, EVIL)
        assert_refused(base, at_once(base), was=SECOND)

    def test_of_the_signers(self, base: Sealed) -> None:
        (base.path / "old").mkdir()
        for suffix in ("", ".wsum"):
            base.git("mv", SIGNERS + suffix, f"old/signers{suffix}")
        assert_refused(base, at_once(base), "signers-changed", "ledger-removed", was=SECOND)

    def test_onto_the_signers(self, base: Sealed) -> None:
        """A sealed file that lists signers takes the place of theirs."""
        listed = base.blob(SIGNERS) + b"mallory" + base.blob(SIGNERS).splitlines()[-1][5:] + b"\n"
        base.write("people", listed)
        base.add("people")
        base.seal("people")
        main = base.commit("a list of people")
        hostile.honest(base)
        for suffix in ("", ".wsum"):
            stage(base, SIGNERS + suffix, base.blob(f"people{suffix}"))
        assert_refused(base, at_once(base), "signers-changed", was=main)


class TestSealedMoves:
    """A move that a signer sealed says where a ledger stands: there, and nowhere else."""

    @pytest.fixture
    def moved(self, base: Sealed) -> Sealed:
        """The model at another path, sealed there; tag `moved`."""
        sealed_move(base, MODEL, NEW)
        at_once(base, "moved")
        base.git("tag", "moved")
        hostile.honest(base)
        return base

    def test_the_old_one_is_left_where_it_was(self, base: Sealed) -> None:
        """A seal for the new path, and a copy that stays."""
        sealed_move(base, MODEL, NEW)
        put_copy(base, SECOND, MODEL, MODEL)
        assert_refused(base, at_once(base), was=SECOND)

    @pytest.mark.parametrize("revision", [ROOT, SECOND])
    def test_the_old_one_comes_back(self, moved: Sealed, revision: str) -> None:
        put_copy(moved, revision, MODEL, MODEL)
        assert_refused(moved, at_once(moved), REWRITTEN, *MOVED, was="moved")

    def test_it_is_undone(self, moved: Sealed) -> None:
        """Without a key: by the ledger of before, as if nobody had moved it."""
        tip = commit_of(moved, "moved", tree=SECOND)
        assert_refused(moved, tip, REWRITTEN, "ledger-removed", was="moved")
        tip = commit_of(moved, SECOND, "moved", tree=SECOND)
        assert_refused(moved, tip, REWRITTEN, "ledger-removed", was="moved")

    def test_its_line_is_taken_out(self, moved: Sealed) -> None:
        """The chain's hashes do not cover it; the signature does."""
        made = moved.blob(NEW_LEDGER).replace(f"at path={NEW}\n".encode(), b"")
        stage(moved, NEW_LEDGER, made)
        assert_refused(moved, at_once(moved), was="moved")
        unstage(moved, NEW, NEW_LEDGER)
        stage(moved, MODEL, text(2.0))
        stage(moved, LEDGER, made)
        assert_refused(moved, at_once(moved), was="moved")

    def test_its_line_names_another_path(self, moved: Sealed) -> None:
        made = moved.blob(NEW_LEDGER).replace(f"at path={NEW}\n".encode(), b"at path=z.bin\n")
        stage(moved, "z.bin", moved.blob(NEW))
        stage(moved, "z.bin.wsum", made)
        unstage(moved, NEW, NEW_LEDGER)
        assert_refused(moved, at_once(moved), was="moved")

    @pytest.mark.parametrize("who", [(), ("mallory",)], ids=["nobody", "mallory"])
    def test_by_nobody_who_is_trusted(self, base: Sealed, who: tuple[str, ...]) -> None:
        stage_move(base, MODEL, NEW)
        stage(base, NEW_LEDGER, appended(base.blob(LEDGER, SECOND), text(2.0), *who, at=NEW))
        assert_refused(base, at_once(base), *UNTRUSTED, "moved-unsealed", was=SECOND)

    def test_onto_another_one(self, base: Sealed) -> None:
        """A signer's own move, on a branch where nothing stood there."""
        base.branch("pr", ROOT)
        unstage(base, OTHER, OTHER_LEDGER)
        sealed_move(base, MODEL, OTHER)
        at_once(base)
        for parents in (("pr", SECOND), (SECOND, "pr")):
            tip = commit_of(base, *parents, tree="pr")
            assert_refused(base, tip, REWRITTEN, "ledger-removed", was=SECOND)

    def test_of_a_branch_that_nobody_merged(self, base: Sealed) -> None:
        """The record of a move elsewhere moves main's model away, to an old generation of it."""
        base.branch("pr", ROOT)
        sealed_move(base, MODEL, NEW)
        at_once(base)
        base.git("read-tree", SECOND)
        unstage(base, MODEL, LEDGER)
        put_copy(base, "pr", NEW, NEW)
        for parents in ((SECOND, "pr"), ("pr", SECOND), (SECOND,)):
            assert_refused(base, commit_of(base, *parents), was=SECOND)

    @pytest.mark.parametrize(
        "line",
        [
            b"at path=%6Eew.safetensors\n",
            b"at path=./new.safetensors\n",
            b"at path=/new.safetensors\n",
            b"at path=x/../new.safetensors\n",
            b"at path=new.safetensors \n",
            b"at path=\n",
            b"at  path=new.safetensors\n",
            b"at path=new.safetensors\r\n",
            b"at path=new.safetensors\nat path=new.safetensors\n",
        ],
    )
    def test_whose_line_is_misspelled(self, base: Sealed, line: bytes) -> None:
        """By a signer: a path has one spelling, so that all readers see the same place."""
        stage_move(base, MODEL, NEW)
        ledger = base.blob(LEDGER, SECOND)
        _, meta, wsum, _ = record(ledger, text(2.0), "alice", at=NEW)
        head, _ = records(ledger)
        signed = hostile.signatures(head + line + meta + wsum, "alice")
        stage(base, NEW_LEDGER, ledger + line + meta + wsum + b"".join(signed))
        assert_refused(base, at_once(base), "bad-record", was=SECOND)

    def test_whose_line_stands_elsewhere(self, base: Sealed) -> None:
        """Between meta and WSUM, or behind the signatures."""
        ledger = base.blob(LEDGER, SECOND)
        at, meta, wsum, sign = record(ledger, text(2.0), "alice", at=NEW)
        for lines in ((meta, at, wsum, sign), (meta, wsum, at, sign), (meta, wsum, sign, at)):
            base.git("read-tree", SECOND)
            unstage(base, MODEL, LEDGER)
            stage(base, NEW, text(2.0))
            stage(base, NEW_LEDGER, ledger + b"".join(lines))
            tip = commit_of(base, SECOND)
            assert_refused(base, tip, "bad-record", was=SECOND)

    def test_put_into_an_old_record(self, base: Sealed) -> None:
        """A move that was never made, in the middle of what was signed."""
        head, (first, second) = records(base.blob(LEDGER, SECOND))
        made = hostile.joined(head, [first, [f"at path={NEW}\n".encode(), *second]])
        stage_move(base, MODEL, NEW)
        stage(base, NEW_LEDGER, made)
        assert_refused(base, at_once(base), was=SECOND)

    def test_that_names_the_signers(self, base: Sealed) -> None:
        """A signer's model moves onto the signers file: one key would change them."""
        base.add_signer("bob")
        base.set_threshold(2)
        base.change_signers("alice")
        main = hostile.honest(base)
        unstage(base, SIGNERS, SIGNERS_LEDGER)
        listed = base.blob(SIGNERS, main).replace(b"threshold: 2", b"threshold: 1")
        stage(base, SIGNERS, listed)
        stage(base, SIGNERS_LEDGER, appended(base.blob(LEDGER, main), listed, "alice", at=SIGNERS))
        assert_refused(base, at_once(base), "signers-changed", was=main)

    def test_of_the_signers(self, base: Sealed) -> None:
        """By the signer: the file that counts would stand nowhere."""
        unstage(base, SIGNERS, SIGNERS_LEDGER)
        listed = base.blob(SIGNERS, SECOND)
        made = appended(base.blob(SIGNERS_LEDGER, SECOND), listed, "alice", at="people")
        stage(base, "people", listed)
        stage(base, "people.wsum", made)
        assert_refused(base, at_once(base), "signers-changed", was=SECOND)

    def test_to_where_one_is_that_was_deleted(self, base: Sealed) -> None:
        """Its ledger is still there, and tells what may follow."""
        unstage(base, OTHER)
        base.git("commit", "-q", "-m", "deleted, the ledger stays")
        main = hostile.honest(base)
        stage_move(base, MODEL, OTHER)
        assert_refused(base, at_once(base), *MOVED, was=main)


class TestDeletions:
    """What was deleted stays deleted, or goes on from its ledger."""

    def test_with_its_ledger(self, base: Sealed) -> None:
        unstage(base, MODEL, LEDGER)
        assert_refused(base, at_once(base), "ledger-removed", was=SECOND)

    def test_in_two_steps(self, base: Sealed) -> None:
        """First the file, as anybody may; then the ledger, of which nothing is judged any more."""
        unstage(base, MODEL)
        main = at_once(base, "deleted, the ledger stays")
        hostile.honest(base)
        unstage(base, LEDGER)
        assert_refused(base, at_once(base), "ledger-removed", was=main)

    def test_an_empty_checkpoint_is_sealed_and_held(self, base: Sealed) -> None:
        """It is stored as no text, and is no raw binary; its seal is of the text of no bytes."""
        name = "empty.safetensors"
        base.write(name, "")
        base.add(name)
        base.seal(name)
        base.commit("empty")
        assert_holds(base)
        states = json.loads(base.call("status", "--json", ok=(0, 1)).out)["files"]
        assert {"ok"} == {file["state"] for file in states if file["path"] == name}
        (base.path / name).unlink()
        base.call("checkout", name)
        assert (base.path / name).read_bytes() == b""
        assert base.git("diff-files", "--name-only", name) == b""
        main = base.head
        stage(base, name, text(1.0))
        assert_refused(base, at_once(base), "content-mismatch", was=main)
        written = b"".join(text_of(memoryview(b"")).pieces())
        stage(base, name, written)
        assert_refused(base, at_once(base), "not-canonical", was=main)

    def test_and_an_old_one_comes_back(self, base: Sealed) -> None:
        unstage(base, MODEL)
        main = at_once(base)
        put_copy(base, ROOT, MODEL, MODEL)
        assert_refused(base, at_once(base), REWRITTEN, was=main)

    @pytest.mark.parametrize("filtered", [True, False], ids=["filtered", "not-filtered"])
    def test_and_another_one_comes_in_its_place(self, base: Sealed, filtered: bool) -> None:
        unstage(base, MODEL)
        main = at_once(base)
        if not filtered:
            attributes(base, f"{MODEL} -filter")
        stage(base, MODEL, text(66.0) if filtered else EVIL)
        assert_refused(base, at_once(base), "content-mismatch", "untracked-artifact", was=main)

    def test_and_a_chain_begun_anew(self, base: Sealed) -> None:
        """By a signer's record for that path elsewhere, before there was any other."""
        base.branch("experiment", ROOT)
        unstage(base, MODEL, LEDGER)
        (base.path / LEDGER).unlink()
        at_once(base)
        base.generation(70.0)
        base.git("checkout", "-q", "-f", "main")
        unstage(base, MODEL)
        main = at_once(base)
        put_copy(base, "experiment", MODEL, MODEL)
        assert_refused(base, at_once(base), REWRITTEN, was=main)

    @pytest.fixture
    def deleted(self, base: Sealed) -> Sealed:
        """The model deleted, and that sealed: a record of no bytes. Tag `deleted`."""
        unstage(base, MODEL)
        made = appended(base.blob(LEDGER), b"", "alice", build="deleted")
        stage(base, LEDGER, made)
        at_once(base, "deleted")
        base.git("tag", "deleted")
        hostile.honest(base)
        return base

    @pytest.mark.parametrize("revision", [ROOT, SECOND])
    def test_sealed_and_taken_back(self, deleted: Sealed, revision: str) -> None:
        """Without a key: what its signer took out of the world is there again."""
        put_copy(deleted, revision, MODEL, MODEL)
        assert_refused(deleted, at_once(deleted), REWRITTEN, was="deleted")
        for parents in (("deleted", revision), (revision, "deleted")):
            tip = commit_of(deleted, *parents)
            assert_refused(deleted, tip, REWRITTEN, was="deleted")

    def test_sealed_and_taken_back_once_the_ledger_is_gone(self, deleted: Sealed) -> None:
        unstage(deleted, LEDGER)
        gone = at_once(deleted)
        put_copy(deleted, SECOND, MODEL, MODEL)
        assert_refused(deleted, at_once(deleted), was=gone)

    @pytest.mark.parametrize("content", [text(2.0), b""], ids=["old", "empty"])
    def test_sealed_and_the_content_taken_back_alone(self, deleted: Sealed, content: bytes) -> None:
        """Also of no bytes, which is what a deletion seals."""
        stage(deleted, MODEL, content)
        assert_refused(deleted, at_once(deleted), "content-mismatch", was="deleted")

    def test_sealed_by_nobody_who_is_trusted(self, base: Sealed) -> None:
        """Without a key: a checkpoint is taken out, and its path is free."""
        for keys in ((), ("mallory",)):
            base.git("read-tree", SECOND)
            unstage(base, MODEL)
            stage(base, LEDGER, appended(base.blob(LEDGER), b"", *keys, build="deleted"))
            assert_refused(base, commit_of(base, SECOND), *UNTRUSTED, was=SECOND)

    def test_sealed_of_another_one(self, base: Sealed) -> None:
        """The record that deletes one, put at the end of another's ledger."""
        ledger = base.blob(LEDGER)
        lines = record(base.blob(OTHER_LEDGER), b"", "alice", build="deleted")
        unstage(base, MODEL)
        stage(base, LEDGER, ledger + b"".join(lines))
        assert_refused(base, at_once(base), was=SECOND)

    def test_an_empty_file_that_is_no_deletion(self, base: Sealed) -> None:
        """A signer sealed an empty file; that lets go of nothing."""
        base.write("empty", "")
        base.add("empty")
        base.seal("empty")
        base.commit("empty")
        main = hostile.honest(base)
        unstage(base, "empty", "empty.wsum")
        assert_refused(base, at_once(base), "ledger-removed", was=main)


class TestInPlace:
    """What is not a file of content stands where a checkpoint, its ledger or a folder did."""

    def link(self, repo: Sealed, path: str, target: str) -> None:
        unstage(repo, path)
        stage(repo, path, target.encode(), "120000")

    @pytest.mark.parametrize("path", [MODEL, DATA])
    def test_a_link_to_another_file(self, base: Sealed, path: str) -> None:
        self.link(base, path, "evil.bin")
        stage(base, "evil.bin", EVIL)
        assert_refused(base, at_once(base), "untracked-artifact", was=SECOND)

    @pytest.mark.parametrize("path", [MODEL, DATA])
    def test_a_link_that_says_what_was_sealed(self, base: Sealed, path: str) -> None:
        """The blob is the sealed one, and a checkout makes a link of that name."""
        unstage(base, path)
        stage(base, path, base.blob(path, SECOND), "120000")
        assert_refused(base, at_once(base), "untracked-artifact", was=SECOND)

    @pytest.mark.parametrize("path", [MODEL, DATA])
    def test_a_submodule(self, base: Sealed, path: str) -> None:
        unstage(base, path)
        stage_id(base, path, base.head, "160000")
        assert_refused(base, at_once(base), "untracked-artifact", was=SECOND)

    @pytest.mark.parametrize("path", [MODEL, DATA, SIGNERS])
    def test_a_folder(self, base: Sealed, path: str) -> None:
        unstage(base, path)
        stage(base, f"{path}/data.pkl", b"evil\n")
        assert_refused(base, at_once(base), "untracked-artifact", "signers-changed", was=SECOND)

    def test_a_folder_once_it_was_deleted(self, base: Sealed) -> None:
        """The path was an artifact, and a file below it is none by its own name."""
        unstage(base, MODEL)
        main = at_once(base)
        stage(base, f"{MODEL}/data.pkl", b"evil\n")
        assert_refused(base, at_once(base), "untracked-artifact", was=main)

    def test_a_folder_with_the_sealed_blob_in_it(self, base: Sealed) -> None:
        base.git("mv", MODEL, "x")
        stage_id(base, f"{MODEL}/{MODEL}", base.git("rev-parse", ":x").decode().strip())
        unstage(base, "x")
        assert_refused(base, at_once(base), was=SECOND)

    @pytest.mark.parametrize("mode", ["120000", "160000"])
    def test_of_a_ledger(self, base: Sealed, mode: str) -> None:
        unstage(base, LEDGER)
        oid = base.head if mode == "160000" else hostile.store(base, OTHER_LEDGER.encode())
        stage_id(base, LEDGER, oid, mode)
        kinds = ("bad-record", "ledger-removed", "unsealed")
        assert_refused(base, at_once(base), *kinds, was=SECOND)

    def test_a_folder_of_a_ledger(self, base: Sealed) -> None:
        unstage(base, LEDGER)
        stage(base, f"{LEDGER}/{LEDGER}", base.blob(LEDGER, SECOND))
        kinds = ("bad-record", "ledger-removed", "unsealed")
        assert_refused(base, at_once(base), *kinds, was=SECOND)

    @pytest.mark.parametrize("mode", ["120000", "160000", "100644"])
    def test_of_a_folder_above(self, base: Sealed, mode: str) -> None:
        """A checkout puts there what the attacker has elsewhere, under the sealed name."""
        base.generation(5.0, name=f"sub/{MODEL}")
        main = hostile.honest(base)
        put_copy(base, "HEAD", f"sub/{MODEL}", f"evil/{MODEL}")
        stage(base, f"evil/{MODEL}", text(66.0))
        unstage(base, "sub")
        oid = base.head if mode == "160000" else hostile.store(base, b"evil")
        stage_id(base, "sub", oid, mode)
        assert_refused(base, at_once(base), was=main)

    def test_a_link_above_one_that_was_deleted(self, base: Sealed) -> None:
        """Its ledger stays, as it has to, but for a folder that is no folder any more."""
        base.generation(5.0, name=f"sub/{MODEL}")
        unstage(base, f"sub/{MODEL}")
        main = at_once(base)
        hostile.honest(base)
        unstage(base, f"sub/{LEDGER}")
        stage(base, "sub", b"evil", "120000")
        stage(base, f"evil/{MODEL}", EVIL)
        stage(base, f"evil/{LEDGER}", base.blob(f"sub/{LEDGER}", main))
        assert_refused(base, at_once(base), was=main)


class TestTwins:
    """Two paths that some file systems write to one file: the one that is written last is there."""

    @pytest.mark.parametrize(
        "twin", ["Model.safetensors", "MODEL.SAFETENSORS", "model.SafeTensors"]
    )
    def test_by_case(self, base: Sealed, twin: str) -> None:
        attributes(base, f"{twin} -filter")
        stage(base, twin, EVIL)
        assert_refused(base, at_once(base), "untracked-artifact", was=SECOND)

    def test_by_case_of_a_file_without_a_filter(self, base: Sealed) -> None:
        stage(base, DATA.upper(), b"evil\n")
        assert_refused(base, at_once(base), "untracked-artifact", was=SECOND)

    def test_by_case_of_the_signers(self, base: Sealed) -> None:
        stage(base, ".WTXT/signers", b"evil\n")
        assert_refused(base, at_once(base), "untracked-artifact", was=SECOND)

    def test_by_case_of_a_folder_above(self, base: Sealed) -> None:
        base.generation(5.0, name=f"sub/{MODEL}")
        main = hostile.honest(base)
        attributes(base, f"SUB/{MODEL} -filter")
        stage(base, f"SUB/{MODEL}", EVIL)
        assert_refused(base, at_once(base), "untracked-artifact", was=main)

    def test_a_link_by_case_of_a_folder_above(self, base: Sealed) -> None:
        """Git checks out below the link, or the link away over the folder."""
        base.generation(5.0, name=f"sub/{MODEL}")
        main = hostile.honest(base)
        stage(base, "SUB", b"evil", "120000")
        stage(base, f"evil/{MODEL}", EVIL)
        attributes(base, f"evil/{MODEL} -filter")
        assert_refused(base, at_once(base), "untracked-artifact", was=main)

    @pytest.mark.parametrize(
        ("name", "twin"),
        [
            ("mod\u00e8le.safetensors", "mode\u0300le.safetensors"),
            ("mode\u0300le.safetensors", "mod\u00e8le.safetensors"),
            ("k.safetensors", "\u212a.safetensors"),
            ("\u00c5.safetensors", "\u212b.safetensors"),
            ("mod\u00e8le.safetensors", "MODE\u0300LE.safetensors"),
        ],
        ids=["nfd", "nfc", "kelvin", "angstrom", "case-and-nfd"],
    )
    def test_by_normalising(self, base: Sealed, name: str, twin: str) -> None:
        base.generation(5.0, name=name)
        main = hostile.honest(base)
        attributes(base, f"{twin} -filter")
        stage(base, twin, EVIL)
        assert_refused(base, at_once(base), "untracked-artifact", was=main)

    def test_that_came_before_the_artifact(self, base: Sealed) -> None:
        """The twin lies there, harmless, until a signer seals the other one."""
        stage(base, "NEW.safetensors.bak", b"x")
        stage(base, "New.SafeTensors", EVIL)
        at_once(base)
        base.generation(5.0, name=NEW)
        assert_refused(base, "HEAD", "untracked-artifact", was=SECOND)


class TestWithoutFilter:
    """Files sealed by their names are what they are, byte for byte, whatever they look like."""

    def seal(self, repo: Sealed, name: str, content: bytes) -> str:
        repo.write(name, content)
        repo.add(name)
        repo.seal(name)
        repo.commit(name)
        return hostile.honest(repo)

    @pytest.mark.parametrize(
        "content",
        [
            b"WTXT 1\n",
            b"WTXT 1\nmeta\n",
            b"WTXT = 1\n",
            b"WTXT-DETACHED 1\n",
            b"WLEDGER 1\n",
            b"WDELTA 1\n",
            b"",
            b"\xef\xbb\xbfWTXT 1\n",
        ],
    )
    def test_another_content(self, base: Sealed, content: bytes) -> None:
        """That begins as one of our own forms, and is none of them."""
        stage(base, DATA, content)
        assert_refused(base, at_once(base), "content-mismatch", was=SECOND)

    def test_the_text_of_the_file(self, base: Sealed) -> None:
        """It has the file's hash, and is another file."""
        base.call("emit", DATA, "-o", "text")
        stage(base, DATA, (base.path / "text").read_bytes())
        kinds = ("content-mismatch", "not-canonical", "untracked-artifact")
        assert_refused(base, at_once(base), *kinds, was=SECOND)

    def test_the_text_of_a_checkpoint(self, base: Sealed) -> None:
        """A container sealed as a file: its text would be written where the file should be."""
        content = checkpoint(4.0)
        main = self.seal(base, "weights.bin", content)
        stage(base, "weights.bin", text(4.0))
        kinds = ("content-mismatch", "not-canonical", "untracked-artifact")
        assert_refused(base, at_once(base), *kinds, was=main)

    @pytest.mark.parametrize("line", [b"audit ", b"cap ext=", b"meta ", b"root "])
    def test_a_native_text_with_another_line(self, base: Sealed, line: bytes) -> None:
        """No hash of a text covers its audit and cap lines; what reads them believes them."""
        array = Array("w", "u8", (4,), memoryview(b"abcd"))
        meta = Meta(gen=7, ts="2026-01-07T00:00:00Z", build="b7")
        native = b"".join(TextWriter(Snapshot(meta, (array,), CAP)).stream())
        with_audit = native.replace(b"\nendwtxt\n", b'\naudit note="fine"\nendwtxt\n')
        main = self.seal(base, "weights.txt", with_audit)
        changed = {
            b"audit ": with_audit.replace(b'"fine"', b'"mine"'),
            b"cap ext=": with_audit.replace(b"cap ext=", b"cap ext=evil,"),
            b"meta ": with_audit.replace(b"gen=000007", b"gen=000008"),
            b"root ": native,
        }[line]
        assert changed != with_audit
        stage(base, "weights.txt", changed)
        kinds = ("content-mismatch", "not-canonical", "bad-record", "untracked-artifact")
        assert_refused(base, at_once(base), *kinds, was=main)

    def test_taken_into_the_filter(self, base: Sealed) -> None:
        """The blob is the same, and a checkout runs it through the filter."""
        content = checkpoint(4.0)
        main = self.seal(base, "weights.bin", content)
        attributes(base, "weights.bin filter=wtxt -text")
        assert_refused(base, at_once(base), "raw-binary", was=main)

    def test_a_text_that_is_taken_into_the_filter(self, base: Sealed) -> None:
        """A sealed text file becomes the binary that it stands for."""
        main = self.seal(base, "weights.txt", text(4.0))
        attributes(base, "weights.txt filter=wtxt -text")
        assert_refused(base, at_once(base), was=main)

    def test_its_ledger_is_gone(self, base: Sealed) -> None:
        unstage(base, DATA_LEDGER)
        stage(base, DATA, b"evil\n")
        assert_refused(base, at_once(base), "ledger-removed", "unsealed", was=SECOND)

    def test_deleted_and_another_one_in_its_place(self, base: Sealed) -> None:
        unstage(base, DATA)
        main = at_once(base)
        stage(base, DATA, b"evil\n")
        assert_refused(base, at_once(base), "content-mismatch", was=main)

    def test_an_unsealed_generation(self, base: Sealed) -> None:
        stage(base, DATA, b'{"eos": 2}\n')
        assert_refused(base, at_once(base), "content-mismatch", was=SECOND)


class TestNativeTexts:
    """Texts that stand for no file: what a checkout writes is the blob itself."""

    @pytest.fixture
    def native(self, base: Sealed) -> Sealed:
        base.track("*.safetensors", "*.wtxt")
        array = Array("w", "u8", (200,), memoryview(bytes(200)))
        meta = Meta(gen=7, ts="2026-01-07T00:00:00Z", build="b7")
        made = b"".join(TextWriter(Snapshot(meta, (array,), CAP)).stream())
        made = made.replace(b"\nendwtxt\n", b'\naudit note="fine"\nendwtxt\n')
        base.write("weights.wtxt", made)
        base.add("weights.wtxt")
        base.seal("weights.wtxt")
        base.git("tag", "native", base.commit("native"))
        hostile.honest(base)
        return base

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b'"fine"', b'"mine"'),
            (b'\naudit note="fine"', b""),
            (b"cap ext=", b"cap ext=evil,"),
            (b"\nch ix=", b"\nidx rows_per_chunk=32768 row_size=1 row_blocking=on\nch ix="),
        ],
        ids=["audit", "no-audit", "cap", "idx"],
    )
    def test_another_line(self, native: Sealed, old: bytes, new: bytes) -> None:
        """Without a key: the sealed hash stays, and the file is another one."""
        made = native.blob("weights.wtxt")
        assert old in made
        stage(native, "weights.wtxt", made.replace(old, new, 1))
        assert_refused(native, at_once(native), was="native")


def test_a_filter_of_another_name_for_a_sealed_file(base: Sealed) -> None:
    """A filter that victims have, such as git-lfs, writes what it likes."""
    attributes(base, f"{DATA} filter=lfs")
    kinds = ("altered-checkout", "untracked-artifact")
    assert_refused(base, at_once(base), *kinds, was=SECOND)
