"""Histories into texts and back, from outside: what git shows before and after."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.containers.zip_files import npy
from tests.data import fixture
from tests.e2e.conftest import assert_clean_when_touched
from tests.kit import Repo, safetensors, text_of
from tests.kit.lfs import kept_by_lfs
from tests.kit.refusals import REFUSED, is_possible
from tests.kit.templates import Templates, copyable
from tests.scale.many import MANY
from wtxtgit.git.cut_off import PENDING
from wtxtgit.remotes.lfs_pointer import parse_pointer
from wtxtgit.text.grammar import is_detached, is_text

IMPORT = ("migrate", "import", "--include", "*.safetensors", "--everything")
NAME = "m.safetensors"
LARGE = tuple(map(float, range(40_000)))
needs_lfs = pytest.mark.skipif(
    shutil.which("git-lfs") is None, reason="git-lfs is not installed: make bench-deps"
)
SIGNED = b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"


def ref(repo: Repo, name: str) -> str:
    return repo.git("rev-parse", name).decode().strip()


def refs(repo: Repo) -> dict[str, str]:
    form = "--format=%(refname) %(objectname)"
    listed = repo.git("for-each-ref", form, "refs/heads", "refs/tags", "refs/notes").decode()
    return dict(line.split(" ") for line in listed.splitlines())


def shown(repo: Repo, *revisions: str) -> bytes:
    """What a log shows of all commits but their ids."""
    form = "--format=%an%n%ae%n%ad%n%cn%n%ce%n%cd%n%e%n%B%n%N"
    return repo.git("log", "--topo-order", "--notes", "--date=raw", form, *revisions)


def object_made(repo: Repo, kind: str, content: bytes) -> str:
    made = repo.git("hash-object", "-t", kind, "-w", "--literally", "--stdin", stdin=content)
    return made.decode().strip()


@pytest.fixture
def history(templates: Templates, tmp_path: Path, driver: None) -> Repo:
    """Branches, an octopus, tags, notes, encodings, odd names; the first has no checkpoint."""
    return Repo(templates.copy("to migrate", _make_history, tmp_path / "repo"))


def _make_history(folder: Path) -> None:
    repo = copyable(folder)
    repo.write("plain.txt", "1\n")
    repo.add()
    repo.commit("first")
    repo.write(NAME, safetensors(1.0, 2.0))
    repo.write("sub/a b\té.safetensors", safetensors(3.0))
    repo.write("empty.safetensors", b"")
    repo.add()
    repo.commit("second", "--author=Ä <a@b>", "--date=1600000000 +0545")
    repo.git("branch", "-M", "main")
    for name in ("one", "two"):
        repo.git("checkout", "-q", "-b", name, "main")
        repo.write(f"{name}.safetensors", safetensors(4.0))
        repo.add()
        repo.git("-c", "i18n.commitEncoding=latin1", "commit", "-qm", b"caf\xe9 " + name.encode())
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "--no-ff", "-m", "octopus", "one", "two")
    repo.write(NAME, safetensors(5.0, 2.0))
    repo.write(".gitattributes", b"*.txt text")
    repo.add()
    repo.commit("third")
    repo.git("tag", "light")
    repo.git("tag", "-a", "-m", "annotated", "v1", "HEAD~1")
    repo.git("tag", "-a", "-m", "of a tag", "v1-again", "v1")
    repo.git("tag", "-a", "-m", "a tree", "tree", "HEAD^{tree}")
    repo.git("notes", "add", "-m", "a note", "HEAD~1")
    repo.git("notes", "add", "-m", "another", "one")
    assert_clean_when_touched(repo, repo.git("ls-files", "-z").decode().split("\0")[:-1])


def test_an_export_of_an_import_gives_every_id_of_before(history: Repo) -> None:
    before, log = refs(history), shown(history, "--all", "--not", "refs/notes/commits")
    done = json.loads(history.wtxtgit(*IMPORT, "--json").stdout)
    after = refs(history)
    assert history.status() == b""
    # What names nothing that changes stays, and the first commit with it.
    assert {name for name in before if before[name] == after[name]} == {"refs/tags/tree"}
    assert ref(history, "main~3") == ref(history, "refs/wtxt/before/1/heads/main~3")
    branches = ("--branches", "--tags")
    assert shown(history, *branches) == log
    assert history.blob(NAME, "main") == text_of(safetensors(5.0, 2.0))
    assert history.blob("sub/a b\té.safetensors", "v1-again") == text_of(safetensors(3.0))
    assert history.blob("empty.safetensors", "main") == b""
    assert (history.path / NAME).read_bytes() == safetensors(5.0, 2.0)
    history.git("fsck", "--strict")
    ids = dict(line.split() for line in Path(done["map"]).read_text().splitlines())
    assert ids[before["refs/heads/main"]] == after["refs/heads/main"]
    # In each commit that has texts the lines for them.
    for commit in history.git("rev-list", "main").decode().split()[:-1]:
        assert b"*.safetensors filter=wtxt" in history.blob(".gitattributes", commit)
    history.wtxtgit("migrate", "export", "--everything")
    assert refs(history) == before
    assert history.status() == b""
    assert (
        history.git("rev-parse", "refs/wtxt/before/2/heads/main").decode().strip()
        == after["refs/heads/main"]
    )


def test_detached_texts_go_the_same_way(history: Repo) -> None:
    history.write(NAME, safetensors(*LARGE))
    history.add()
    history.commit("large")
    before = refs(history)
    history.wtxtgit(*IMPORT, "--detached")
    assert history.status() == b""
    assert history.blob(NAME, "main").startswith(b"WTXT-DETACHED 1\n")
    (history.path / NAME).unlink()
    history.git("checkout", "--", NAME)
    assert (history.path / NAME).read_bytes() == safetensors(*LARGE)
    history.wtxtgit("migrate", "export", "--everything")
    assert refs(history) == before


def signed_head(repo: Repo) -> str:
    """Have the branch at its commit with a signature."""
    head, message = repo.git("cat-file", "commit", "main").split(b"\n\n", 1)
    signature = b"gpgsig -----BEGIN SSH SIGNATURE-----\n AAAA\n -----END SSH SIGNATURE-----"
    signed = object_made(repo, "commit", head + b"\n" + signature + b"\n\n" + message)
    repo.git("reset", "-q", "--hard", signed)
    return signed


def test_signatures_go_and_are_counted(history: Repo) -> None:
    signed = signed_head(history)
    tag = b"object %b\ntype commit\ntag s\ntagger a <a@b> 1 +0000\n\nsaid\n" % signed.encode()
    history.git("update-ref", "refs/tags/s", object_made(history, "tag", tag + SIGNED))
    # Once, though another tag leads to it as well.
    history.git("tag", "-a", "-m", "of a tag", "s-again", "s")
    planned = history.wtxtgit(*IMPORT, "--dry-run").stdout.decode()
    assert "would be dropped: 2 signatures of commits and tags\n" in planned
    done = json.loads(history.wtxtgit(*IMPORT, "--json").stdout)
    assert done["signatures"] == 2
    assert b"gpgsig" not in history.git("cat-file", "commit", "main")
    assert history.git("cat-file", "tag", "s").endswith(b"\n\nsaid\n")


def test_a_commit_that_git_would_not_write_again_ends_it(history: Repo) -> None:
    head, message = history.git("cat-file", "commit", "main").split(b"\n\n", 1)
    odd = object_made(history, "commit", head + b"\nHG:extra branch\n\n" + message)
    history.git("reset", "-q", "--hard", odd)
    before = refs(history)
    said = history.wtxtgit(*IMPORT, ok=(1,)).stderr.decode()
    assert f"commit {odd} has a part that git fast-import can't reproduce" in said
    assert refs(history) == before


def test_a_branch_alone_leaves_the_others_and_says_so(history: Repo) -> None:
    before = refs(history)
    done = history.wtxtgit("migrate", "import", "--include", "*.safetensors", "one")
    after = refs(history)
    moved = {name for name in before if before[name] != after[name]}
    assert moved == {"refs/heads/one", "refs/notes/commits"}
    assert "5 refs still at old commits" in done.stderr.decode()
    # Both have the note now.
    assert history.git("notes", "show", before["refs/heads/one"]) == b"another\n"
    assert history.git("notes", "show", "one") == b"another\n"


def test_a_dry_run_changes_nothing(history: Repo) -> None:
    before = refs(history), history.git("count-objects", "-v")
    done = history.wtxtgit(*IMPORT, "--dry-run").stdout.decode()
    assert done == "5 of 6 commits would be rewritten: 4 versions of 4 files\n"
    assert (refs(history), history.git("count-objects", "-v")) == before


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (("write",), "there are uncommitted changes"),
        (
            ("worktree", "add", "-q", "../other", "one"),
            "refs/heads/one is checked out in another work tree",
        ),
        (("replace", "one", "two"), "objects are replaced"),
    ],
)
def test_what_would_lose_something_is_refused(
    history: Repo, prepare: tuple[str, ...], said: str
) -> None:
    if prepare == ("write",):
        history.write("plain.txt", "2\n")
    else:
        history.git(*prepare)
    before = refs(history)
    assert said in history.wtxtgit(*IMPORT, ok=(5,)).stderr.decode()
    assert refs(history) == before


@pytest.mark.skipif(not is_possible(), reason="this system's calls are not known: run it on Linux")
def test_a_repository_that_may_not_be_written(repo: Repo) -> None:
    repo.commit()
    folder = repo.path / ".git"
    for one in (folder / "objects", folder):
        one.chmod(0o555)
    done = repo.wtxtgit("migrate", "info", env={REFUSED: "rights"}, ok=[5])
    said = f"wtxtgit: error: {folder}: can't be written: permission denied\n"
    assert done.stderr.decode() == said


@pytest.mark.parametrize(
    "command", [("info",), ("import", "--include", "*.npz"), ("export",)], ids=" ".join
)
def test_without_a_commit(repo: Repo, command: tuple[str, ...]) -> None:
    done = repo.wtxtgit("migrate", *command, ok=[5])
    assert done.stderr == b"wtxtgit: error: no commits yet\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("main~1..main",), 2, "'main~1..main' is neither a branch nor a tag"),
        (("main@{0}",), 2, "'main@{0}' is neither a branch nor a tag"),
        (("nothing",), 2, "'nothing' is neither a branch nor a tag"),
        (("tree",), 2, "refs/tags/tree names no commit"),
        (("both",), 2, "'both' is a branch and a tag"),
        (("--include", "*", "main"), 2, "match .gitattributes, which git itself reads"),
        (("--include", "sub/**", "--everything"), 2, "match sub/.gitattributes"),
        (("lock", "main"), 5, "index.lock exists"),
        (("no object", "--everything"), 5, "missing or damaged"),
    ],
)
def test_what_is_asked_for_in_vain_changes_nothing(
    history: Repo, arguments: tuple[str, ...], code: int, said: str
) -> None:
    history.write("sub/.gitattributes", "x text")
    history.add()
    history.commit("lines in a folder")
    history.git("branch", "both")
    history.git("tag", "both")
    lock = history.path / ".git/index.lock"
    if arguments[0] == "lock":
        lock.touch()
    if arguments[0] == "no object":
        oid = ref(history, "main~2^{tree}")
        (history.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    before = refs(history), (history.path / ".git/index").read_bytes()
    words = [word for word in arguments if word not in {"lock", "no object"}]
    told = history.wtxtgit(*IMPORT[:4], *words, ok=(code,)).stderr.decode()
    assert said in told
    assert told.count("error: ") == 1
    assert (refs(history), (history.path / ".git/index").read_bytes()) == before


def test_a_branch_that_is_named_twice_is_one(history: Repo) -> None:
    done = json.loads(history.wtxtgit(*IMPORT[:4], "main", "refs/heads/main", "--json").stdout)
    assert [move["ref"] for move in done["refs"]] == ["refs/heads/main", "refs/notes/commits"]


def test_an_import_that_is_done_has_nothing_to_do(history: Repo) -> None:
    history.wtxtgit(*IMPORT)
    before = history.git("for-each-ref")
    for options in ((), ("--dry-run",)):
        again = history.wtxtgit(*IMPORT, *options)
        assert again.stdout.decode().splitlines() == [
            "6 commits: nothing to migrate",
            "left alone: 4 versions, texts already",
        ]
        assert history.git("for-each-ref") == before


def test_commits_that_have_texts_keep_their_signatures(history: Repo) -> None:
    history.wtxtgit(*IMPORT)
    signed_head(history)
    before = refs(history)
    assert "nothing to migrate" in history.wtxtgit(*IMPORT).stdout.decode()
    assert refs(history) == before


def test_an_export_that_is_done_has_nothing_to_do(history: Repo) -> None:
    before = history.git("for-each-ref")
    for options in ((), ("--dry-run",)):
        done = history.wtxtgit("migrate", "export", "--everything", *options)
        assert done.stdout == b"6 commits: nothing to migrate\n"
    assert history.git("for-each-ref") == before


def test_many_detached_versions_are_few_packs_with_what_they_share(history: Repo) -> None:
    for number in range(6):
        history.write(NAME, safetensors(float(number), *LARGE))
        history.add()
        history.commit(f"large {number}")
    before = refs(history)
    history.wtxtgit(*IMPORT, "--detached")
    (pack,) = (history.path / ".git/wtxt/store/packs").glob("*.pack")
    assert pack.stat().st_size < 2 * len(safetensors(*LARGE))
    history.wtxtgit("store", "verify")
    history.wtxtgit("migrate", "export", "--everything")
    assert refs(history) == before


def test_a_clone_without_folders_is_told_of(history: Repo) -> None:
    history.git("config", "uploadpack.allowFilter", "true")
    partial = Repo(history.path.parent / "partial")
    history.git("clone", "-q", "--filter=tree:0", f"file://{history.path}", str(partial.path))
    for words in (("info",), ("export",), IMPORT[1:]):
        said = partial.wtxtgit("migrate", *words, ok=(5,)).stderr.decode()
        assert "this is a partial clone" in said


def test_a_migration_that_was_cut_off_is_ended_by_the_next(history: Repo) -> None:
    before, index = refs(history), (history.path / ".git/index").read_bytes()
    ours, attributes = history.path / ".git/index", (history.path / ".gitattributes").read_bytes()
    killed = history.path / ".git" / PENDING
    main = before["refs/heads/main"]
    history.wtxtgit(*IMPORT)
    after = refs(history)
    # As it is where the process ends once the refs have moved.
    ours.write_bytes(index)
    history.write(".gitattributes", attributes)
    killed.write_text(f"{main} {after['refs/heads/main']} texts\n")
    assert history.status() != b""
    said = history.wtxtgit("doctor", ok=(0, 1)).stdout.decode()
    assert "a migration was interrupted" in said
    done = history.wtxtgit("migrate", "import", "--include", "*.nothing")
    assert "finished a migration that was interrupted" in done.stderr.decode()
    assert history.status() == b""
    assert not killed.exists()
    assert "cut off" not in history.wtxtgit("doctor", ok=(0, 1)).stdout.decode()


def test_a_shallow_clone_is_refused(history: Repo) -> None:
    shallow = Repo(history.path.parent / "shallow")
    history.git("clone", "-q", "--depth=1", f"file://{history.path}", str(shallow.path))
    assert "the clone is shallow" in shallow.wtxtgit(*IMPORT, ok=(5,)).stderr.decode()


def test_changes_that_were_stashed_come_back(history: Repo) -> None:
    history.write("plain.txt", "2\n")
    history.git("stash", "-q")
    history.wtxtgit(*IMPORT)
    history.git("stash", "pop", "-q")
    assert history.status() == b" M plain.txt\0"
    assert (history.path / "plain.txt").read_bytes() == b"2\n"


@pytest.mark.slow
@pytest.mark.parametrize("form", [(), ("--detached",)])
def test_checkpoints_that_were_stashed_come_back_staged(
    history: Repo, form: tuple[str, ...]
) -> None:
    main, plain = history.git("rev-parse", "main"), safetensors(8.0)
    states = []
    for name, value in ((NAME, 6.0), ("new.safetensors", 7.0)):
        history.write(name, safetensors(value))
        history.add(name)
        history.write("plain.txt", f"{name}\n")
        history.write("untracked.safetensors", plain)
        states.append(history.status())
        history.git("stash", "-q", "--include-untracked")
    before = history.git("stash", "list")
    done = history.wtxtgit(*IMPORT, *form)
    assert "and 2 of the stash; their" in done.stdout.decode()
    assert history.git("stash", "list") == before
    assert history.git("rev-parse", "refs/wtxt/before/1/stash/0~1") == main
    for name, value in (("new.safetensors", 7.0), (NAME, 6.0)):
        history.git("stash", "pop", "-q", "--index")
        assert history.status() == states.pop()
        assert is_text(history.blob(name))
        assert (history.path / name).read_bytes() == safetensors(value)
        assert (history.path / "untracked.safetensors").read_bytes() == plain
        history.git("reset", "-q", "--hard")
        history.git("clean", "-qfd")
    assert history.git("stash", "list") == b""


def test_a_stash_goes_out_of_texts_as_well(history: Repo) -> None:
    history.wtxtgit(*IMPORT)
    history.write(NAME, safetensors(6.0))
    history.add()
    history.git("stash", "-q")
    history.wtxtgit("migrate", "export", "--everything")
    history.git("stash", "pop", "-q", "--index")
    assert history.status() == f"M  {NAME}\0".encode()
    assert history.blob(NAME) == safetensors(6.0)


def test_a_stash_of_pointers_becomes_one_of_texts(repo: Repo, driver: None) -> None:
    made_of_pointers(repo, 1.0)
    pointer, _ = kept_by_lfs(repo.path / ".git/lfs", safetensors(2.0))
    repo.write(NAME, pointer)
    repo.git("stash", "-q")
    repo.wtxtgit("migrate", "import", "--from-lfs")
    repo.git("stash", "pop", "-q")
    assert (repo.path / NAME).read_bytes() == safetensors(2.0)
    assert repo.status() == f" M {NAME}\0".encode()


def test_a_stash_on_another_branch_stays(history: Repo) -> None:
    history.write(NAME, safetensors(6.0))
    history.git("stash", "-q")
    before = history.git("rev-parse", "stash")
    history.git("checkout", "-q", "one")
    history.wtxtgit("migrate", "import", "--include", "*.safetensors")
    assert history.git("rev-parse", "stash") == before


def made_of_pointers(repo: Repo, *values: float) -> None:
    """A commit for each of the file's values, as git-lfs makes them."""
    repo.write(".gitattributes", "*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    for key in ("clean", "smudge"):
        repo.git("config", f"filter.lfs.{key}", "cat")
    for value in values:
        pointer, _ = kept_by_lfs(repo.path / ".git/lfs", safetensors(value))
        repo.write(NAME, pointer)
        repo.add()
        repo.commit(f"{value}")
    repo.git("branch", "-M", "main")


def test_pointers_need_their_objects(repo: Repo, driver: None) -> None:
    pointer, place = kept_by_lfs(repo.path / ".git/lfs", safetensors(1.0))
    repo.write(NAME, pointer)
    repo.write("sub/.gitattributes", "*.safetensors filter=lfs diff=lfs merge=lfs -text lockable")
    shutil.copy(repo.path / NAME, repo.path / "sub" / NAME)
    repo.git("-c", "filter.lfs.clean=cat", "add", ".")
    repo.commit()
    repo.git("branch", "-M", "main")
    before = refs(repo)
    said = repo.wtxtgit(*IMPORT, ok=(1,)).stderr.decode()
    assert "git-lfs pointers in place of files: 1" in said
    place.rename(repo.path.parent / "away")
    said = repo.wtxtgit(*IMPORT, "--from-lfs", ok=(5,)).stderr.decode()
    assert "1 object of git-lfs missing; nothing was changed" in said
    assert refs(repo) == before
    (repo.path.parent / "away").rename(place)
    repo.wtxtgit(*IMPORT, "--from-lfs")
    assert repo.status() == b""
    # They stood as pointers.
    for name in (NAME, f"sub/{NAME}"):
        assert (repo.path / name).read_bytes() == safetensors(1.0)
    assert b"-text lockable" in repo.blob("sub/.gitattributes", "main")


def large_history(repo: Repo, commits: int) -> None:
    """Five files that git-lfs tracks, one of them changed in each commit; the real git-lfs."""
    repo.git("lfs", "install", "--local")
    repo.git("lfs", "track", "*.safetensors")
    for number in range(commits):
        repo.write(f"m{number % 5}.safetensors", safetensors(float(number), 1.0))
        repo.git("add", ".")
        repo.commit(f"commit {number}")
    repo.git("branch", "-M", "main")


def sealed_and_audited(repo: Repo) -> set[str]:
    """Seal what an import made and begin trust there, then change a file; gives what differs."""
    repo.wtxtgit("key", "new", "--name", "a", "--no-passphrase")
    repo.wtxtgit("signers", "add", "a@example.com", "a")
    repo.add(".wtxt")
    repo.wtxtgit("seal", "--key", "a")
    root = repo.commit("sealed after the migration")
    repo.write("m0.safetensors", safetensors(-1.0, 1.0))
    repo.add()
    repo.wtxtgit("seal", "--staged", "--key", "a")
    repo.commit("sealed change")
    audited = ("audit", "--trust-root", root, "--require-signed", "--json")
    told = json.loads(repo.wtxtgit(*audited).stdout)
    assert (told["ok"], told["findings"]) == (True, [])
    return set(repo.git("diff", "--name-only", f"{root}~1").decode().split())


@needs_lfs
@pytest.mark.parametrize(
    # Every night it is as many as a team has after some months.
    "commits",
    [pytest.param(500 if MANY > 1 else 8, marks=pytest.mark.slow)],
)
def test_a_history_leaves_git_lfs_and_returns(repo: Repo, driver: None, commits: int) -> None:
    large_history(repo, commits)
    before = refs(repo)
    done = repo.wtxtgit("migrate", "import", "--from-lfs", "--everything").stdout.decode()
    assert f"{commits} of {commits} commits rewritten: {commits} versions of 5 files" in done
    assert repo.status() == b""
    assert repo.git("lfs", "ls-files") == b""
    # A clone without git-lfs has the files.
    clone = repo.clone("clone")
    names = sorted(file.name for file in repo.path.glob("*.safetensors"))
    for name in names:
        assert (clone.path / name).read_bytes() == (repo.path / name).read_bytes()
    sealed = sealed_and_audited(repo)
    repo.wtxtgit("migrate", "export", "--to-lfs", "--everything")
    # All that came from git-lfs is as it was; what was sealed since has its ledgers beside it.
    assert ref(repo, "main~2") == before["refs/heads/main"]
    assert repo.git("lfs", "ls-files", "--name-only").decode().split() == names
    assert set(repo.git("diff", "--name-only", "main~2").decode().split()) == sealed
    assert repo.status() == b""


def kept_as_texts(repo: Repo) -> None:
    """Two commits of texts: whole, detached, native, and one that nobody can read."""
    repo.git("lfs", "install", "--local")
    repo.wtxtgit("track", "*.safetensors")
    repo.wtxtgit("track", "--detached", "*.npz")
    for value in (1.0, 2.0):
        repo.write(NAME, safetensors(value))
        repo.write("large.npz", safetensors(value, *LARGE))
        wtxtgit.dump({"w": np.full(3, value, "f4")}, repo.path / "native.safetensors")
        damaged = text_of(safetensors(value)).replace(b"crc32c=", b"crc32c=f", 1)
        repo.write("damaged.safetensors", damaged)
        repo.add()
        repo.commit(f"{value}")
    repo.git("branch", "-M", "main")


@needs_lfs
@pytest.mark.parametrize("patterns", ["*.safetensors,*.npz", "*.safetensors"])
def test_texts_that_git_lfs_took_over_come_back(repo: Repo, driver: None, patterns: str) -> None:
    kept_as_texts(repo)
    before = [repo.git("ls-tree", "-r", name) for name in ("main", "main~1")]
    files = {file: file.read_bytes() for file in repo.path.iterdir() if file.is_file()}
    repo.git("lfs", "migrate", "import", "--yes", "--everything", f"--include={patterns}")
    assert parse_pointer(memoryview(repo.blob(NAME))) is not None
    # Among those of git-lfs that were always its own.
    repo.write("later.safetensors", safetensors(3.0))
    repo.add("later.safetensors")
    repo.commit("by git-lfs")
    assert parse_pointer(memoryview(repo.blob("later.safetensors"))) is not None
    repo.wtxtgit("migrate", "import", "--from-lfs", "--everything")
    assert repo.status() == b""
    repo.git("reset", "-q", "--hard")
    for name, tree in (("main~1", before[0]), ("main~2", before[1])):
        assert without_attributes(repo.git("ls-tree", "-r", name)) == without_attributes(tree)
    for file, content in files.items():
        assert file.name == ".gitattributes" or file.read_bytes() == content
    assert is_text(repo.blob("later.safetensors"))
    assert (repo.path / "later.safetensors").read_bytes() == safetensors(3.0)


def without_attributes(tree: bytes) -> list[bytes]:
    return [line for line in tree.splitlines() if not line.endswith(b".gitattributes")]


@needs_lfs
@pytest.mark.parametrize("form", ["wtxt", "wtxt-detached"])
def test_texts_of_git_lfs_get_the_form_that_their_line_says(
    repo: Repo, driver: None, form: str
) -> None:
    """A text in another form than its driver's would show as changed."""
    kept_as_texts(repo)
    # Not the pattern of `track`, whose line would say it.
    repo.git("lfs", "migrate", "import", "--yes", "--everything", "--include=large*,m*")
    options = ["--detached"] if form == "wtxt-detached" else []
    repo.wtxtgit("migrate", "import", "--from-lfs", "--everything", *options)
    assert repo.status() == b""
    assert is_detached(repo.blob("large.npz")) is (form == "wtxt-detached")
    assert (repo.path / "large.npz").read_bytes() == safetensors(2.0, *LARGE)


@needs_lfs
def test_fetch_writes_the_file_of_an_object_that_is_a_text(repo: Repo, driver: None) -> None:
    kept_as_texts(repo)
    pointer, _ = kept_by_lfs(repo.path / ".git/lfs", repo.blob(NAME))
    repo.write(NAME, pointer)
    repo.wtxtgit("fetch", NAME)
    assert (repo.path / NAME).read_bytes() == safetensors(2.0)
    assert repo.status() == b""


def test_info_shows_what_texts_would_cost(history: Repo) -> None:
    said = history.wtxtgit("migrate", "info", "--everything").stdout.decode()
    assert said.splitlines()[1].split()[:3] == ["*.safetensors", "4", "4"]
    (row,) = json.loads(history.wtxtgit("migrate", "info", "--json").stdout)["patterns"]
    assert (row["files"], row["versions"], row["formats"]) == (4, 4, ["safetensors"])
    assert row["size"] < row["text"]


@pytest.fixture
def sealed(repo: Repo, driver: None) -> Repo:
    """A checkpoint that is sealed as a text, and one that is stored as it is."""
    repo.wtxtgit("key", "new", "--name", "a", "--no-passphrase")
    repo.git("config", "wtxtgit.signingKey", "a")
    repo.wtxtgit("signers", "add", "a@example.com", "a")
    repo.track("*.fold")
    repo.write("m.fold", fixture("fold/none_json_a.fold"))
    repo.add()
    repo.wtxtgit("seal", "--staged")
    root = repo.commit("trust begins")
    repo.git("config", "wtxtgit.trustRoot", root)
    repo.write("a.npy", npy(np.ones(4)))
    repo.add()
    repo.commit("a file as it is")
    repo.wtxtgit("audit")
    return repo


def hints(said: bytes) -> list[str]:
    return re.findall(r"^wtxtgit: hint: (.+)$", said.decode(), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["import", "export"])
def test_hints_about_seals_lead_to_an_audit_that_holds(sealed: Repo, direction: str) -> None:
    patterns = ("--include", "*.npy") if direction == "import" else ()
    said = sealed.wtxtgit("migrate", direction, *patterns, "--everything").stderr
    assert (b"1 file without a seal" in said) == (direction == "import")
    assert (b"1 sealed file stored in another form" in said) == (direction == "export")
    seal, then, audit = hints(said)[0].split(", then ")
    sealed.wtxtgit(*seal.split()[1:])
    assert then == "git commit if it sealed any"
    if sealed.git("diff", "--cached", "--name-only"):
        sealed.commit("sealed")
    told = json.loads(sealed.wtxtgit(*audit.split()[1:], "--json").stdout)
    assert told["ok"], told["findings"]
