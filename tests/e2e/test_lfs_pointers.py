"""A pointer of git-lfs is no checkpoint: nothing makes a text of one, and all say what it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import wtxtgit
from tests.e2e.conftest import checks, states
from tests.e2e.sealed import MODEL, Sealed
from tests.kit import Repo, safetensors, text_of
from tests.kit.lfs import kept_by_lfs
from wtxtgit.errors import InputError
from wtxtgit.filter.clean import clean, clean_detached
from wtxtgit.filter.smudge import smudge
from wtxtgit.remotes.lfs_pointer import POINTER

FILE = safetensors(*range(64))
NAME = "m.safetensors"
LINES = {"attached": "filter=wtxt", "detached": "filter=wtxt-detached"}


@pytest.fixture
def pointer(tmp_path: Path) -> bytes:
    return kept_by_lfs(tmp_path / "lfs", FILE)[0]


@pytest.fixture(params=LINES.values(), ids=LINES)
def driven(repo: Repo, driver: None, pointer: bytes, request: pytest.FixtureRequest) -> Repo:
    """A repository in which a pointer lies where a checkpoint is tracked."""
    repo.write(".gitattributes", f"*.safetensors {request.param} diff=wtxt merge=wtxt -text\n")
    repo.write(NAME, pointer)
    return repo


def opaque_text(pointer: bytes) -> bytes:
    """What was made of a pointer before there was a rule."""
    from wtxtgit.filter.clean import text_of

    return b"".join(text_of(memoryview(pointer)).pieces())


def test_clean_and_smudge_give_it_as_it_is(pointer: bytes) -> None:
    for cleaned in (clean(memoryview(pointer)), clean_detached(memoryview(pointer), None)):
        assert b"".join(cleaned.pieces()) == pointer
        assert POINTER in (cleaned.warning or "")
    assert b"".join(smudge(memoryview(pointer)).pieces()) == pointer
    # Its text, which git may have of before, is that of a file that is stored as it is.
    assert text_of(opaque_text(pointer)) == pointer


ADDED: dict[str, Callable[[Repo], object]] = {
    "git add": lambda repo: repo.git("add", "-A"),
    "wtxtgit add": lambda repo: repo.wtxtgit("add", "."),
    "renormalize": lambda repo: (repo.git("add", "-N", "."), repo.git("add", "--renormalize", ".")),
    "commit -a": lambda repo: (repo.git("add", "-N", "."), repo.git("commit", "-qam", "a")),
}


@pytest.mark.parametrize("add", ADDED.values(), ids=ADDED)
@pytest.mark.slow
def test_git_gets_it_as_it_is(driven: Repo, pointer: bytes, add: Callable[[Repo], object]) -> None:
    add(driven)
    assert driven.blob(NAME) == pointer
    oid = driven.git("rev-parse", f":{NAME}")
    assert driven.git("hash-object", f"--path={NAME}", "--", NAME) == oid
    driven.commit("c", "--allow-empty")
    assert driven.status().replace(b"?? .gitattributes\0", b"") == b""
    (driven.path / NAME).unlink()
    driven.git("checkout", "--", NAME)
    assert (driven.path / NAME).read_bytes() == pointer


@pytest.mark.slow
def test_all_who_look_name_it(driven: Repo, pointer: bytes) -> None:
    said = driven.wtxtgit("add", ".").stderr.decode()
    assert f"{NAME}: {POINTER} (wtxtgit fetch); stored unchanged" in said
    driven.commit()
    assert states(driven) == {NAME: "lfs-pointer"}
    assert "wtxtgit fetch fetches it" in driven.wtxtgit("status").stdout.decode()
    (listed,) = json.loads(driven.wtxtgit("ls-files", "--json").stdout)["files"]
    assert listed["format"] == "lfs-pointer"
    found = checks(driven)
    assert found["lfs-pointer"]["fix"].startswith("wtxtgit fetch, then git add --renormalize")
    assert found["raw-binary"]["level"] == "ok"
    driven.wtxtgit("doctor", "--fix", ok=(1,))
    assert driven.blob(NAME) == pointer
    # What is pulled is a change like any other.
    driven.write(NAME, FILE)
    assert states(driven) == {NAME: "modified"}
    driven.wtxtgit("add", ".")
    assert driven.blob(NAME) == text_of(FILE)
    driven.commit()
    shown = driven.git("show", "--ext-diff").decode()
    assert f"not compared: before: {POINTER}" in shown
    assert "not-compared" in risks(driven, "HEAD~1")
    driven.git("checkout", "-q", "HEAD~1")
    driven.git("rm", "-q", "--cached", NAME)
    driven.commit("none")
    driven.add(NAME)
    driven.commit("a pointer")
    assert "lfs-pointer" in risks(driven, "HEAD~1")


def risks(repo: Repo, base: str) -> set[str]:
    """What a review of the branch since `base` flags."""
    told = json.loads(repo.wtxtgit("review", base, "--json").stdout)
    (one,) = told["artifacts"]
    return {flag["risk"] for flag in one["flags"]}


READERS = (
    "inspect FILE",
    "inspect FILE w",
    "verify FILE",
    "emit FILE",
    "emit --gen 2 FILE",
    "restore FILE -o x",
    "convert FILE x.npz",
    "repack FILE --compression none",
    "encrypt -r age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p FILE",
    "recover FILE",
    "attach FILE",
    "detach FILE",
    "diff FILE FILE",
)


@pytest.mark.slow
@pytest.mark.parametrize("command", READERS)
def test_who_reads_checkpoints_refuses_it(
    driven: Repo, pointer: bytes, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(driven.path)
    done = Sealed(driven.path).call(*command.replace("FILE", NAME).split(), ok=(3,))
    said = done.out + done.err
    assert f"{NAME}: {POINTER} ({len(FILE)} bytes, sha256 " in said
    assert "hint: git lfs install, then git lfs pull; wtxtgit fetch, if wtxtgit tracks it" in said
    assert (driven.path / NAME).read_bytes() == pointer


@pytest.mark.slow
def test_a_blob_that_is_one(driven: Repo) -> None:
    driven.add()
    driven.commit()
    done = Sealed(driven.path).call("inspect", f"HEAD:{NAME}", ok=(3,))
    assert f"hint: git show HEAD:{NAME} | git lfs smudge > FILE writes the file" in done.err
    assert POINTER in Sealed(driven.path).call("diff", f"HEAD:{NAME}", NAME, ok=(3,)).err


def test_python_refuses_it(tmp_path: Path, pointer: bytes) -> None:
    path = tmp_path / NAME
    path.write_bytes(pointer)
    for read in (wtxtgit.load, wtxtgit.verify):
        with pytest.raises(InputError, match="git-lfs"):
            read(path)
    with pytest.raises(InputError, match="git-lfs"), wtxtgit.open(path):
        pass


@pytest.mark.slow
def test_track_tells_of_git_lfs(repo: Repo, driver: None, pointer: bytes) -> None:
    repo.write(".gitattributes", "*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    repo.add_raw(NAME, pointer)
    repo.commit()
    for form in ((), ("--detached",)):
        done = repo.wtxtgit("track", *form, "*.safetensors", "*.gguf")
        said = done.stderr.decode()
        assert f"committed as pointers of git-lfs: {NAME}\n" in said
        assert "git-lfs tracked '*.safetensors': its line in .gitattributes stays, but " in said
        assert "wtxtgit migrate import --from-lfs --include '*.safetensors' converts" in said
    assert repo.blob(NAME) == pointer


class TestSealed:
    """What trust makes of one."""

    @pytest.fixture
    def replaced(self, chain: Sealed, pointer: bytes) -> Sealed:
        """The chain, whose model was replaced by a pointer."""
        chain.add_raw(MODEL, pointer)
        return chain

    @pytest.mark.slow
    def test_nobody_seals_one(self, replaced: Sealed, pointer: bytes) -> None:
        for options in (("--staged",), (), ("--staged", "--reseal")):
            said = replaced.call("seal", *options, "--key", "alice", "--", MODEL, ok=(1,)).err
            assert f"{MODEL}: {POINTER}" in said
            assert f"hint: wtxtgit fetch fetches the file, then git add -- {MODEL}" in said
        # Nor where no filter is for it.
        replaced.write("notes.bin", pointer)
        replaced.add("notes.bin")
        assert POINTER in replaced.call("seal", "--key", "alice", "notes.bin", ok=(1,)).err

    @pytest.mark.slow
    @pytest.mark.parametrize("is_known", [True, False])
    def test_it_proves_nothing(self, replaced: Sealed, is_known: bool) -> None:
        done = replaced.call("check", "--staged", "--json", ok=(1,))
        assert "lfs-pointer" in done.kinds
        if not is_known:
            # Nobody ever sealed it.
            replaced.git("mv", MODEL, "new.safetensors")
        replaced.commit("pointer")
        replaced.generation(9.0, name="other.safetensors")
        path = MODEL if is_known else "new.safetensors"
        for range_ in (("HEAD~2..HEAD~1",), ("HEAD~1..HEAD",), ()):
            found = replaced.audit(*range_)
            assert found.code == 1
            assert (path, "lfs-pointer") in {(one.path, one.kind) for one in found.found}

    @pytest.mark.slow
    def test_the_text_of_one_is_not_canonical(self, chain: Sealed, pointer: bytes) -> None:
        chain.add_raw(MODEL, opaque_text(pointer))
        done = chain.call("check", "--staged", "--json", ok=(1,))
        assert "not-canonical" in done.kinds


@pytest.mark.slow
def test_the_hook_refuses_it(driven: Repo) -> None:
    driven.wtxtgit("install", "--local", "--hooks")
    driven.git("add", "-A")
    said = driven.run("git", "commit", "-qm", "x", ok=(1,)).stderr.decode()
    assert f"{NAME}: lfs-pointer: {POINTER}" in said
    assert f"wtxtgit fetch ./{NAME} && git add --renormalize -- {NAME}" in said


@pytest.mark.slow
def test_both_sides_changed_one(driven: Repo, pointer: bytes, tmp_path: Path) -> None:
    """A conflict: ours stays, as the pointer that it is."""
    driven.add()
    base = driven.commit()
    mine, theirs = (kept_by_lfs(tmp_path / "lfs", FILE + end)[0] for end in (b"1", b"2"))
    for branch, content in (("theirs", theirs), ("mine", mine)):
        driven.git("checkout", "-q", "-b", branch, base or "HEAD")
        driven.write(NAME, content)
        driven.add()
        driven.commit(branch)
    driven.run("git", "merge", "theirs", ok=(1,))
    assert (driven.path / NAME).read_bytes() == mine
    assert states(driven) == {NAME: "conflict"}
