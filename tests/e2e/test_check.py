"""`check --staged`: what it says of a commit about to be made, from the index alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    ROOT,
    SIGNERS,
    Sealed,
    checkpoint,
    text,
)
from tests.kit import Repo, safetensors
from wtxtgit.model.array import Array, Meta, Snapshot
from wtxtgit.text.grammar import CAP
from wtxtgit.text.write import dumps

ERROR = 1
UNTRUSTED = 4


def check(repo: Sealed, code: int = 0, **env: str) -> list[tuple[str, str]]:
    """What is found: path and kind of each."""
    for name, value in env.items():
        os.environ[name] = value
    try:
        said = repo.call("check", "--staged", "--json", ok=(code,))
    finally:
        for name in env:
            del os.environ[name]
    assert said.report["ok"] == (code == 0)
    assert {found.commit for found in said.found} <= {""}
    return [(found.path, found.kind) for found in said.found]


def hook(repo: Sealed, code: int = 0) -> list[tuple[str, str]]:
    """The same of the pre-commit hook."""
    said = repo.call("hook", "pre-commit", "--json", ok=(code,))
    return [(found.path, found.kind) for found in said.found]


def shown(repo: Sealed, code: int = 0) -> str:
    said = repo.call("check", "--staged", ok=(code,))
    assert said.err == ""
    return said.out


def test_without_the_option(chain: Sealed) -> None:
    said = chain.call("check", ok=(2,))
    assert "check needs --staged" in said.err
    assert "wtxtgit check --staged" in said.err


class TestWhatHolds:
    def test_a_generation(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal(MODEL)
        assert check(chain) == []
        assert f"{MODEL}  " in shown(chain)
        assert "sealed, generation 2 by alice@example.com" in shown(chain)
        files = chain.call("hook", "pre-commit", "--json").report["files"]
        assert {one["path"]: one for one in files}[MODEL] == {
            "path": MODEL,
            "state": "sealed, generation 2 by alice@example.com",
            "size": len(text(2.0)),
            "generation": 2,
            "signers": ["alice@example.com"],
        }

    def test_nothing_is_staged(self, chain: Sealed) -> None:
        assert check(chain) == []
        assert "ok: 3 files checked, 0 errors, 0 warnings" in shown(chain)
        assert len(chain.call("hook", "pre-commit", "--json").report["files"]) == 3

    def test_a_deletion_that_keeps_the_ledger(self, chain: Sealed) -> None:
        chain.git("rm", "-q", MODEL)
        assert check(chain) == []
        assert "deleted, last sealed, generation 1 by alice@example.com" in shown(chain)

    def test_a_rename_with_its_ledger(self, chain: Sealed) -> None:
        chain.git("mv", MODEL, "renamed.safetensors")
        chain.git("mv", LEDGER, "renamed.safetensors.wsum")
        assert check(chain, ERROR) == [("renamed.safetensors", "moved-unsealed")]
        assert "wtxtgit seal --staged -- renamed.safetensors" in shown(chain, ERROR)
        chain.seal("renamed.safetensors")
        assert check(chain) == []

    def test_a_repository_without_anything(self, repo: Repo) -> None:
        repo.write("readme", "x")
        repo.add()
        sealed = Sealed(repo.path)
        assert check(sealed) == []
        assert shown(sealed) == "ok: 0 files checked, 0 errors, 0 warnings\n"

    def test_the_first_commit(self, repo: Repo, keys: None) -> None:
        sealed = Sealed(repo.path)
        sealed.track("*.safetensors")
        sealed.put(1.0)
        assert check(sealed) == [(MODEL, "unsealed")], "a warning"
        sealed.add_signer("alice")
        assert check(sealed, ERROR) == [(SIGNERS, "unsealed"), (MODEL, "unsealed")]
        sealed.seal()
        assert check(sealed) == []

    def test_the_index_alone(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal(MODEL)
        for name in (MODEL, LEDGER, SIGNERS, ".gitattributes"):
            (chain.path / name).unlink()
        chain.write(".git/info/attributes", "* -filter\n")
        assert check(chain) == []
        chain.git("config", "core.attributesFile", "/dev/null")
        assert check(chain) == []

    def test_another_index(self, chain: Sealed, tmp_path: Path) -> None:
        other = str(tmp_path / "index")
        chain.git("read-tree", "HEAD", env={"GIT_INDEX_FILE": other})
        chain.put(2.0)
        assert check(chain, GIT_INDEX_FILE=other) == []
        assert check(chain, ERROR) == [(MODEL, "content-mismatch")]

    def test_a_cosigned_record(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.seal(SIGNERS)
        chain.commit("bob")
        chain.seal("--cosign", MODEL, key="bob")
        assert check(chain) == []


class TestWhatDoesNot:
    def test_a_record_cosigned_by_nobody_who_is_trusted(self, chain: Sealed) -> None:
        chain.seal("--cosign", MODEL, key="bob")
        assert check(chain, UNTRUSTED) == [(MODEL, "untrusted-signer")]

    def test_a_raw_binary(self, chain: Sealed) -> None:
        chain.add_raw(MODEL, checkpoint(2.0))
        assert check(chain, ERROR) == [(MODEL, "raw-binary")]
        assert f"wtxtgit install && git add --renormalize -- {MODEL}" in shown(chain, ERROR)

    def test_a_damaged_text(self, chain: Sealed) -> None:
        chain.write(MODEL, text(2.0).replace(b"crc32c=", b"crc32c=f", 1))
        chain.add(MODEL)
        assert check(chain, ERROR) == [(MODEL, "corrupt-text")]

    def test_a_text_that_is_not_canonical(self, chain: Sealed) -> None:
        chain.write("x", checkpoint(1.0))
        chain.call("emit", "x", "-o", "y", "--gen", "7", "--build", "nightly")
        chain.write(MODEL, (chain.path / "y").read_bytes())
        chain.add(MODEL)
        found = check(chain, ERROR)
        assert (MODEL, "not-canonical") in found

    def test_an_unsealed_one(self, chain: Sealed) -> None:
        chain.put(1.0, name="new.safetensors")
        assert check(chain, ERROR) == [("new.safetensors", "unsealed")]
        assert "wtxtgit seal --staged -- new.safetensors" in shown(chain, ERROR)

    def test_another_content(self, chain: Sealed) -> None:
        chain.put(2.0)
        assert check(chain, ERROR) == [(MODEL, "content-mismatch")]

    def test_swapped_checkpoints(self, chain: Sealed) -> None:
        chain.generation(2.0)
        model, other = chain.ledger(), chain.ledger(OTHER_LEDGER)
        chain.put(1.0)
        chain.put(2.0, name=OTHER)
        chain.write(LEDGER, other)
        chain.write(OTHER_LEDGER, model)
        chain.add()
        assert check(chain, ERROR) == [(MODEL, "bad-record"), (OTHER, "bad-record")]
        chain.seal()
        assert check(chain) == [], "a swap is two moves"

    def test_a_removed_ledger(self, chain: Sealed) -> None:
        chain.git("rm", "-q", LEDGER)
        assert (MODEL, "ledger-removed") in check(chain, ERROR)
        assert f"wtxtgit seal --reseal -- {MODEL}" in shown(chain, ERROR)
        chain.git("restore", "--staged", "--worktree", "--", LEDGER)
        assert check(chain) == []

    def test_a_broken_ledger(self, chain: Sealed) -> None:
        chain.write(LEDGER, chain.ledger() + b"meta\n")
        chain.add()
        assert check(chain, ERROR) == [(MODEL, "bad-record")]

    def test_a_link_in_its_place(self, chain: Sealed) -> None:
        (chain.path / MODEL).unlink()
        (chain.path / MODEL).symlink_to(OTHER)
        chain.add()
        assert check(chain, ERROR) == [(MODEL, "untracked-artifact")]

    def test_a_filter_that_is_dropped(self, chain: Sealed) -> None:
        chain.write(".gitattributes", "")
        chain.add()
        assert check(chain, ERROR) == [
            (MODEL, "untracked-artifact"),
            (OTHER, "untracked-artifact"),
        ]
        assert [path for path, _ in hook(chain, ERROR)] == [MODEL, OTHER]

    def test_a_foreign_signer(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal(MODEL, key="mallory")
        assert check(chain, UNTRUSTED) == [(MODEL, "untrusted-signer")]
        assert f"wtxtgit seal --countersign -- {MODEL}" in shown(chain, UNTRUSTED)
        chain.seal("--countersign", MODEL, key="alice")
        assert check(chain) == []

    def test_a_forged_signature(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal(MODEL)
        chain.falsify_signature()
        assert check(chain, UNTRUSTED) == [(MODEL, "bad-signature")]

    def test_a_missing_signature(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal(MODEL)
        lines = (chain.path / LEDGER).read_bytes().splitlines(keepends=True)
        chain.write(LEDGER, b"".join(lines[:-1]))
        chain.add()
        assert check(chain, UNTRUSTED) == [(MODEL, "missing-signature")]

    def test_signers_changed_by_themselves(self, chain: Sealed) -> None:
        chain.add_signer("mallory")
        chain.seal(SIGNERS, key="mallory")
        assert check(chain, UNTRUSTED) == [(SIGNERS, "signers-changed")]

    def test_a_key_that_a_commit_brings_itself(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.seal(SIGNERS, key="alice")
        chain.put(2.0)
        chain.seal(MODEL, key="bob")
        assert check(chain) == [], "alice has sealed that bob may"

    def test_a_native_text(self, chain: Sealed) -> None:
        chain.write("notes.wtxt", b"no text\n")
        chain.add()
        assert check(chain, ERROR) == [("notes.wtxt", "corrupt-text")]

    def test_what_was_committed_before(self, chain: Sealed) -> None:
        """A commit is its whole tree: an audit will tell of it there, too."""
        chain.add_raw("raw.safetensors", checkpoint(2.0))
        chain.commit()
        chain.write("readme", "x")
        chain.add("readme")
        assert ("raw.safetensors", "raw-binary") in check(chain, ERROR)
        assert hook(chain, ERROR) == check(chain, ERROR)

    def test_hostile_names(self, chain: Sealed) -> None:
        names = [
            "-rf.safetensors",
            "a\nb.safetensors",
            "\x1b[31m.safetensors",
            "\udcff.safetensors",
        ]
        for name in names:
            chain.add_raw(name, checkpoint(2.0))
        assert sorted({path for path, _ in check(chain, ERROR)}) == sorted(names)
        assert "\x1b" not in shown(chain, ERROR)


class TestSizes:
    def test_the_limit(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal(MODEL)
        size = len(text(2.0))
        chain.git("config", "wtxtgit.maxBlob", str(size))
        assert check(chain) == [(MODEL, "large-blob"), (OTHER, "large-blob")], "warnings"
        said = chain.call("hook", "pre-commit")
        assert f"wtxtgit: warning: {MODEL}: large-blob" in said.err
        chain.git("config", "wtxtgit.maxBlob", str(size - 1))
        assert check(chain, ERROR)[0] == (MODEL, "large-blob")
        assert hook(chain, ERROR) == [(MODEL, "large-blob")]
        chain.git("config", "wtxtgit.maxBlob", str(2 * size))
        assert check(chain) == []

    @pytest.mark.parametrize(("spelled", "found"), [("1k", ERROR), ("1m", 0)])
    def test_suffixes_of_git(self, chain: Sealed, spelled: str, found: int) -> None:
        chain.git("config", "wtxtgit.maxBlob", spelled)
        check(chain, found)

    def test_the_default(self, repo: Repo) -> None:
        from wtxtgit.setup.sizes import max_blob

        assert max_blob(repo.repository) == 100 * 1024 * 1024


class TestTrust:
    def test_a_root(self, chain: Sealed) -> None:
        chain.git("config", "wtxtgit.trustRoot", ROOT)
        chain.put(2.0)
        chain.seal(MODEL)
        assert check(chain) == []
        chain.git("config", "wtxtgit.trustRoot", "nothing")
        said = chain.call("check", "--staged", ok=(5,))
        assert "'nothing' names nothing" in said.err

    def test_a_root_elsewhere(self, chain: Sealed) -> None:
        tree = chain.git("rev-parse", "HEAD^{tree}").decode().strip()
        other = chain.git("commit-tree", "-m", "other", tree).decode().strip()
        chain.git("config", "wtxtgit.trustRoot", other)
        assert check(chain, UNTRUSTED) == [("", "bad-root")]

    def test_a_file_that_is_named_as_the_root_is_not_taken_for_it(self, chain: Sealed) -> None:
        """A branch may add any file."""
        chain.git("config", "wtxtgit.trustRoot", ROOT)
        listed = chain.call("key", "show", "mallory").out
        chain.write(ROOT, f"mallory@example.com {' '.join(listed.split()[:2])}\n")
        chain.put(2.0)
        chain.seal(MODEL, key="mallory")
        assert check(chain, UNTRUSTED) == [(MODEL, "untrusted-signer")]

    def test_a_shallow_clone_takes_commits(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.git("clone", "-q", "--depth=1", f"file://{chain.path}", "../shallow")
        shallow = Sealed(chain.path.parent / "shallow")
        shallow.git("config", "wtxtgit.trustRoot", ROOT)
        shallow.put(3.0)
        shallow.seal(MODEL)
        said = shallow.call("check", "--staged", "--json")
        assert said.found == []
        (note,) = said.report["notes"]
        assert "it is not known who is trusted" in note
        assert "the clone is shallow" in note
        shallow.put(4.0)
        assert check(shallow, ERROR) == [(MODEL, "content-mismatch")]
        shallow.write(LEDGER, shallow.ledger(revision="HEAD").replace(b"gen=000001", b"gen=000002"))
        shallow.add()
        assert (MODEL, "bad-record") in check(shallow, ERROR)


class TestAmend:
    def test_a_generation_sealed_anew(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.take("HEAD~1", LEDGER)
        chain.put(3.0)
        chain.seal(MODEL)
        assert check(chain) == []
        chain.git("commit", "-q", "--amend", "--no-edit")
        assert chain.audit().code == 0

    def test_one_appended(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.put(3.0)
        chain.seal(MODEL)
        assert check(chain) == []

    def test_the_first_generation_of_a_file(self, chain: Sealed) -> None:
        chain.generation(1.0, name="new.safetensors")
        chain.git("rm", "-q", "--cached", "new.safetensors.wsum")
        (chain.path / "new.safetensors.wsum").unlink()
        chain.put(2.0, name="new.safetensors")
        chain.seal("new.safetensors")
        assert check(chain) == []

    def test_of_signers(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.take("HEAD~1", SIGNERS, f"{SIGNERS}.wsum")
        chain.add_signer("carol")
        chain.seal(SIGNERS)
        assert check(chain) == []
        chain.put(2.0)
        chain.seal(MODEL, key="bob")
        assert check(chain, UNTRUSTED) == [(MODEL, "untrusted-signer")], "bob is no signer then"

    def test_an_older_state_that_comes_back_is_none(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.generation(3.0)
        chain.git("revert", "-n", "HEAD")
        assert check(chain, ERROR) == [(MODEL, "ledger-rewritten")]
        said = shown(chain, ERROR)
        assert f"wtxtgit seal --reseal -- {MODEL}" in said
        chain.call("seal", "--reseal", "--key", "alice", "--", MODEL)
        assert check(chain) == []

    def test_what_amends_a_file_does_not_excuse_another(self, chain: Sealed) -> None:
        chain.generation(2.0, name=OTHER)
        chain.generation(2.0)
        chain.take("HEAD~1", LEDGER)
        chain.put(3.0)
        chain.seal(MODEL)
        chain.take("HEAD~2", OTHER, OTHER_LEDGER)
        assert check(chain, ERROR) == [(OTHER, "ledger-rewritten")]

    def test_a_foreign_signer_in_an_amend(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.take("HEAD~1", LEDGER)
        chain.put(3.0)
        chain.seal(MODEL, key="mallory")
        assert check(chain, UNTRUSTED) == [(MODEL, "untrusted-signer")]


def native_text() -> bytes:
    """A text that stands for itself."""
    array = Array("w", "u8", (4,), memoryview(b"wxyz"))
    return dumps(Snapshot(Meta(), (array,), CAP))


class TestWhatIsKnown:
    """Facts that are known already are not found again, and change nothing."""

    def test_a_second_check_reads_nothing(
        self, chain: Sealed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chain.put(2.0)
        chain.seal(MODEL)
        chain.write("native.wtxt", native_text())
        chain.add("native.wtxt")
        chain.call("check", "--staged")
        monkeypatch.setattr("wtxtgit.chain.reader.read_facts", None)
        assert check(chain) == hook(chain) == []
        said = chain.call("check", "--staged", "--no-cache", ok=(70,))
        assert "TypeError" in said.err

    def test_what_is_wrong_is_found_again(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.write("native.wtxt", native_text().replace(b"crc32c=", b"crc32c=0", 1))
        chain.add("native.wtxt")
        plain = chain.call("check", "--staged", "--no-cache", "--json", ok=(1,)).report
        assert {found["kind"] for found in plain["findings"]} >= {"corrupt-text"}
        for _ in range(2):
            assert chain.call("check", "--staged", "--json", ok=(1,)).report == plain

    @pytest.mark.slow
    def test_after_add_nothing_is_verified(
        self, chain: Sealed, driver: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What made the blob knows what it is."""
        check(chain)
        chain.write("new.safetensors", checkpoint(7.0))
        chain.call("add", "new.safetensors")
        monkeypatch.setattr("wtxtgit.chain.reader.read_facts", None)
        assert hook(chain, code=1) == [("new.safetensors", "unsealed")]

    @pytest.mark.slow
    def test_after_gits_own_add_nothing_is_verified(
        self, chain: Sealed, driver: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The filter wrote the object, so it knows what that is."""
        check(chain)
        chain.write("new.safetensors", safetensors(*range(400_000)))
        chain.git("add", "new.safetensors")
        monkeypatch.setattr("wtxtgit.chain.reader.read_facts", None)
        assert hook(chain, code=1) == [("new.safetensors", "unsealed")]
