"""`wtxtgit add` does what `git add` does, in real repositories of all kinds."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.data import cases, fixture, golden
from tests.e2e.conftest import PAIRS, traced, version
from tests.e2e.sealed import Sealed
from tests.git.histories import new_repo
from tests.kit import Repo, safetensors

MODEL = "model.safetensors"
OLD = 10**9


@pytest.fixture
def here(repo: Repo, driver: None) -> Sealed:
    """A repository with the driver, where *.safetensors is tracked."""
    repo.track("*.safetensors")
    return Sealed(repo.path)


def staged(repo: Repo) -> bytes:
    return repo.git("ls-files", "--stage", "-z")


def settled(repo: Repo, *names: str) -> None:
    """Make files older than any index: their times tell whether they were changed."""
    for name in names:
        os.utime(repo.path / name, (OLD, OLD))


def assert_as_git_adds(repo: Sealed, *arguments: str, cwd: str = "") -> None:
    """Add in one way, then the other: the index and the objects are the same."""
    index = repo.path / ".git/index"
    before = index.read_bytes() if index.exists() else None
    moment = index.stat() if before is not None else None
    repo.git("add", *arguments, cwd=cwd)
    by_git = staged(repo)
    if before is None:
        index.unlink()
    else:
        index.write_bytes(before)
    if moment is not None:
        # Git tells by it which files may be younger than their entries.
        os.utime(index, ns=(moment.st_atime_ns, moment.st_mtime_ns))
    place = Sealed(repo.path / cwd)
    place.call("add", *arguments)
    assert staged(repo) == by_git
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == b""


def test_objects_and_index_are_those_of_git_add(here: Sealed) -> None:
    here.write(MODEL, safetensors(1.0, 2.0))
    here.write("sub/dir/b.safetensors", safetensors(*range(70_000)))
    here.write("sub/text.txt", "plain")
    here.write("run.safetensors", safetensors(3.0)).chmod(0o755)
    here.write("empty.safetensors", b"")
    here.write("junk.safetensors", os.urandom(5000))
    here.write("text.safetensors", here.path.joinpath(".gitattributes").read_bytes())
    (here.path / "link.safetensors").symlink_to(MODEL)
    assert_as_git_adds(here, ".")
    here.commit()
    assert here.status() == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "cwd"),
    [
        (("model.safetensors",), ""),
        (("sub",), ""),
        (("./b.safetensors", "../model.safetensors"), "sub"),
        ((".",), "sub"),
        (("*.safetensors",), ""),
        ((":(glob)sub/*.safetensors", ":!sub/c.safetensors"), ""),
        (("-u",), "sub"),
        (("-A",), "sub"),
        (("-u", "."), "sub"),
        (("--", "-dash.safetensors"), ""),
        (("gone.safetensors", "gone.txt"), ""),
        (("-f", "ignored.safetensors"), ""),
    ],
)
def test_paths_are_those_of_git_add(here: Sealed, arguments: Sequence[str], cwd: str) -> None:
    names = (MODEL, "gone.safetensors", "gone.txt", "sub/b.safetensors", "sub/kept.safetensors")
    for name in names:
        here.write(name, safetensors(float(len(name))))
    here.write(".gitignore", "ignored*\n")
    here.add()
    here.commit()
    for name in (MODEL, "sub/b.safetensors"):
        here.write(name, safetensors(9.0, 8.0))
    for name in ("gone.safetensors", "gone.txt"):
        (here.path / name).unlink()
    for name in ("-dash", "sub/c", "sub/new*", "ignored"):
        here.write(f"{name}.safetensors", safetensors(7.0))
    assert_as_git_adds(here, *arguments, cwd=cwd)


@pytest.mark.parametrize("paths", [("nosuch",), ("ignored.bin",), ("../..",), ("sub/x", MODEL)])
def test_what_git_refuses_is_refused_in_its_words(here: Sealed, paths: Sequence[str]) -> None:
    here.write(MODEL, safetensors(1.0))
    here.write(".gitignore", "ignored*\n")
    here.write("ignored.bin", "x")
    before = staged(here)
    git = here.run("git", "add", *paths, ok=(1, 128))
    said = here.call("add", *paths, ok=(1 if git.returncode == 1 else 2,))
    words = git.stderr.decode().splitlines()[0]
    assert words.removeprefix("fatal: ").removeprefix("The ").rstrip() in said.err
    assert "hint: hint" not in said.err
    assert staged(here) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "paths",
    [
        ("in/a.safetensors", "out/b.safetensors"),
        ("in/a.safetensors", "in/plain", "out/new.safetensors"),
        ("in/new.safetensors", "out/b.safetensors", "in/plain"),
        ("out",),
        ("in", "out"),
        ("-A",),
        (".",),
        ("-u",),
        ("in/a.safetensors", "in/ignored.safetensors"),
        ("in/plain", "in/ignored.safetensors", "out/new.safetensors"),
        ("-f", "in/ignored.safetensors", "in/a.safetensors"),
    ],
)
def test_what_git_leaves_out_keeps_nothing_else_from_being_added(
    here: Sealed, paths: Sequence[str]
) -> None:
    for name in ("in/a", "out/b"):
        here.write(f"{name}.safetensors", safetensors(1.0))
    here.write("in/plain", "1")
    here.write(".gitignore", "ignored*\n")
    here.add()
    here.commit()
    here.git("sparse-checkout", "set", "--cone", "in")
    here.write("in/a.safetensors", safetensors(2.0))
    here.write("in/plain", "two")
    # Git knows it as tracked, and does not add it.
    here.write("out/b.safetensors", safetensors(2.0))
    for name in ("in/new", "in/ignored", "out/new"):
        here.write(f"{name}.safetensors", safetensors(3.0))
    index = here.path / ".git/index"
    before, moment = index.read_bytes(), index.stat()
    code = here.run("git", "add", *paths, ok=(0, 1)).returncode
    by_git = staged(here)
    index.write_bytes(before)
    os.utime(index, ns=(moment.st_atime_ns, moment.st_mtime_ns))
    here.call("add", "-n", *paths, ok=(code,))
    assert index.read_bytes() == before
    told = here.call("add", *paths, ok=(code,))
    assert staged(here) == by_git
    assert ("wtxtgit: error: " in told.err) is bool(code)
    assert ("hint: " in told.err) is bool(code)


def test_nothing_named_adds_nothing(here: Sealed) -> None:
    here.write(MODEL, safetensors(1.0))
    assert "no path given" in here.call("add", ok=(2,)).err
    assert "cannot be combined" in here.call("add", "-A", "-u", ok=(2,)).err
    said = here.call("add", "-n", ".")
    assert said.out == f"add '.gitattributes'\nadd '{MODEL}'\n" or said.out == f"add '{MODEL}'\n"
    assert b"model" not in staged(here)


def test_git_runs_no_filter_afterwards(here: Sealed) -> None:
    here.write(MODEL, safetensors(1.0))
    settled(here, MODEL)
    here.call("add", MODEL)
    for command in (("status",), ("diff", "--quiet"), ("commit", "-qm", "c"), ("status",)):
        assert traced(here, *command).filters == 0
    assert here.status() == b""


@pytest.mark.slow
def test_a_touched_file_is_not_made_again(here: Sealed) -> None:
    here.write(MODEL, safetensors(*range(70_000)))
    here.call("add", MODEL)
    here.commit()
    objects = sorted((here.path / ".git/objects").rglob("*"))
    settled(here, MODEL)
    here.call("add", MODEL)
    assert here.git("diff-files") == b""
    assert sorted((here.path / ".git/objects").rglob("*")) == objects
    # The blob is known, but no longer there.
    for path in (here.path / ".git/objects/pack").iterdir():
        path.unlink()
    settled(here, MODEL)
    os.utime(here.path / MODEL, (OLD + 1, OLD + 1))
    here.call("add", MODEL)
    assert here.git("fsck", "--full", "--no-dangling") == b""


def test_all_blobs_are_a_few_packs(here: Sealed) -> None:
    for number in range(30):
        here.write(f"d{number % 4}/{number % 20}-{number}.safetensors", safetensors(number % 20.0))
    here.call("add", ".")
    counts = dict(
        line.split(": ") for line in here.git("count-objects", "-v").decode().splitlines()
    )
    assert (counts["packs"], counts["in-pack"]) == ("4", "20")
    here.commit()
    here.git("gc", "-q")
    assert here.git("fsck", "--full", "--strict") == b""


@pytest.mark.slow
def test_real_files_are_pushed_and_cloned(repo: Repo, driver: None, tmp_path: Path) -> None:
    repo.track("*.aero", "*.fold", "*.checkpoint", "*.taridx", "*.safetensors")
    here = Sealed(repo.path)
    for name in PAIRS:
        here.write(name, version(name, 1))
    here.call("add", "-A")
    here.commit()
    bare = tmp_path / "bare.git"
    here.git("init", "-q", "--bare", str(bare))
    here.git("push", "-q", str(bare), "main")
    clone = Repo(bare).clone("clone")
    for name in PAIRS:
        assert (clone.path / name).read_bytes() == version(name, 1)


@pytest.mark.slow
def test_every_real_file(repo: Repo, driver: None) -> None:
    repo.track("checkpoints/**")
    here = Sealed(repo.path)
    for path in golden():
        here.write(f"checkpoints/{path or 'empty'}", fixture(path) if path else b"")
    for case in cases():
        here.write(f"checkpoints/vectors/{case.file}", case.text)
    assert_as_git_adds(here, ".")


def test_warnings_are_those_of_the_filter(here: Sealed) -> None:
    here.write(MODEL, b"WTXT 1\nno text\n")
    said = here.call("add", MODEL)
    assert "not a valid text" in said.err
    assert "stored unchanged" in said.err
    assert here.blob(MODEL) == b"WTXT 1\nno text\n"


def test_what_changes_meanwhile_is_not_added(here: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    from wtxtgit.filter import clean as cleaning

    file = here.write(MODEL, safetensors(1.0))
    settled(here, MODEL)
    clean = cleaning.clean

    def meanwhile(*arguments: object, **options: object) -> object:
        made = clean(*arguments, **options)  # type: ignore[arg-type]
        file.touch()
        return made

    monkeypatch.setattr(cleaning, "clean", meanwhile)
    assert "changed while it was read" in here.call("add", MODEL, ok=(5,)).err
    assert b"model" not in staged(here)
    assert list((here.path / ".git/objects/pack").glob("*")) == []


@pytest.mark.parametrize("made_by", ["clean", "clean_detached"])
def test_what_is_mapped_and_changes_without_its_times_is_not_added(
    here: Sealed, made_by: str
) -> None:
    from wtxtgit.filter import add
    from wtxtgit.filter import clean as cleaning

    if made_by == "clean_detached":
        here.write(".gitattributes", b"*.safetensors filter=wtxt-detached -text\n")
    first, second = (safetensors(*range(start, start + 40_000)) for start in (0, 1))
    file = here.write(MODEL, first)
    clean = getattr(cleaning, made_by)

    def meanwhile(*arguments: object, **options: object) -> object:
        made = clean(*arguments, **options)
        file.write_bytes(second)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, made_by, meanwhile)
        patch.setattr(add, "moment_of", lambda _status: (0,))
        assert "changed while it was read" in here.call("add", MODEL, ok=(5,)).err
    assert b"model" not in staged(here)
    here.call("add", MODEL)
    whole = cleaning.clean(memoryview(second)).writer
    assert whole is not None
    writer = whole if made_by == "clean" else whole.detached(None)
    assert here.blob(MODEL) == b"".join(writer.stream())


@pytest.mark.slow
def test_files_and_folders_take_each_others_places(here: Sealed) -> None:
    here.write("a.safetensors/inner.safetensors", safetensors(1.0))
    here.write("b.safetensors", safetensors(2.0))
    here.add()
    here.commit()
    (here.path / "a.safetensors/inner.safetensors").unlink()
    (here.path / "a.safetensors").rmdir()
    (here.path / "b.safetensors").unlink()
    here.write("a.safetensors", safetensors(3.0))
    here.write("b.safetensors/inner.safetensors", safetensors(4.0))
    assert_as_git_adds(here, "-A")


def file_became_folder(repo: Sealed) -> None:
    (repo.path / "a.safetensors").unlink()
    for name in ("new.safetensors", "deep/new.safetensors", "new.txt"):
        repo.write(f"a.safetensors/{name}", safetensors(3.0))


def folder_became_file(repo: Sealed) -> None:
    shutil.rmtree(repo.path / "d")
    repo.write("d", safetensors(3.0))


def file_became_link(repo: Sealed) -> None:
    (repo.path / "a.safetensors").unlink()
    (repo.path / "a.safetensors").symlink_to("b.txt")


def link_became_file(repo: Sealed) -> None:
    (repo.path / "l.safetensors").unlink()
    repo.write("l.safetensors", safetensors(4.0))


def folder_became_link(repo: Sealed) -> None:
    (repo.path / "d").rename(repo.path / "e")
    (repo.path / "d").symlink_to("e")


def file_became_repository(repo: Sealed) -> None:
    (repo.path / "a.safetensors").unlink()
    repo.git("clone", "-q", "--no-checkout", ".", "a.safetensors")


def intended(repo: Sealed) -> None:
    for name in ("i.safetensors", "i.txt"):
        repo.write(name, safetensors(5.0))
        repo.git("add", "-N", name)


def intended_became_folder(repo: Sealed) -> None:
    intended(repo)
    (repo.path / "i.safetensors").unlink()
    repo.write("i.safetensors/new.safetensors", safetensors(6.0))


def in_a_sparse_checkout(repo: Sealed) -> None:
    repo.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    file_became_folder(repo)


SWAPS = [
    file_became_folder, folder_became_file, file_became_link, link_became_file, folder_became_link,
    file_became_repository, intended, intended_became_folder, in_a_sparse_checkout,
]  # fmt: skip


@pytest.mark.parametrize("arguments", [("-u",), ("-u", "a.safetensors"), (".", ":!*.txt"), ("-A",)])
@pytest.mark.parametrize("swap", SWAPS)
def test_another_kind_of_file_is_added_as_git_does(
    here: Sealed, swap: Callable[[Sealed], None], arguments: Sequence[str]
) -> None:
    for name in ("a.safetensors", "d/x.safetensors", "d/y.txt", "b.txt"):
        here.write(name, safetensors(1.0))
    (here.path / "l.safetensors").symlink_to("b.txt")
    here.add()
    here.commit()
    swap(here)
    assert_as_git_adds(here, *arguments)


def test_links_are_links_where_the_work_tree_has_none(here: Sealed) -> None:
    link = here.path / "link.safetensors"
    link.symlink_to("elsewhere")
    here.add()
    here.git("config", "core.symlinks", "false")
    link.unlink()
    link.write_text("elsewhere.else")
    assert_as_git_adds(here, ".")


def test_what_is_found_is_kept_from_a_gc(here: Sealed) -> None:
    """Git makes young what it need not write: nothing names it yet."""
    here.write(MODEL, safetensors(1.0))
    here.add()
    oid = here.git("rev-parse", f":{MODEL}").decode().strip()
    here.git("reset", "-q")
    loose = here.path / ".git/objects" / oid[:2] / oid[2:]
    os.utime(loose, (OLD, OLD))
    here.call("add", MODEL)
    here.git("reset", "-q")
    here.git("prune", "--expire=1.week.ago")
    assert here.git("cat-file", "-t", oid) == b"blob\n"


def test_a_path_outside_of_a_sparse_checkout_is_refused_as_git_does(here: Sealed) -> None:
    here.write(MODEL, safetensors(1.0))
    here.add()
    here.git("update-index", "--skip-worktree", MODEL)
    assert "sparse" in here.call("add", MODEL, ok=(1,)).err


def test_without_the_driver_nothing_is_added(repo: Repo) -> None:
    here = Sealed(repo.path)
    here.track("*.safetensors")
    here.write(MODEL, safetensors(1.0))
    said = here.call("add", MODEL, ok=(5,))
    assert "wtxtgit install" in said.err
    assert b"model" not in staged(here)


def test_a_locked_index_is_told(here: Sealed) -> None:
    here.write(MODEL, safetensors(1.0))
    (here.path / ".git/index.lock").touch()
    assert "index.lock exists" in here.call("add", MODEL, ok=(5,)).err
    assert (here.path / ".git/index.lock").exists()


@pytest.mark.slow
def test_other_conversions_are_left_to_git(here: Sealed) -> None:
    for number, line in enumerate(("text", "ident", "working-tree-encoding=latin1")):
        name = f"{number}.safetensors"
        here.write(".gitattributes", f"{name} filter=wtxt -text\n{name} {line}\n")
        here.write(name, b"$Id$\r\n" * 3 if number < 2 else b"caf\xe9\n")
        assert_as_git_adds(here, name)


def test_modes_are_the_indexs_where_files_have_none(here: Sealed) -> None:
    here.write(MODEL, safetensors(1.0)).chmod(0o755)
    here.add()
    for value, number in (("false", 2.0), ("yes", 3.0)):
        here.git("config", "core.fileMode", value)
        here.write(MODEL, safetensors(number)).chmod(0o644)
        here.write(f"{value}.safetensors", safetensors(number)).chmod(0o755)
        assert_as_git_adds(here, ".")


def test_a_conflict_is_settled(here: Sealed) -> None:
    here.write(MODEL, safetensors(1.0))
    here.call("add", ".")
    oid = here.git("rev-parse", f":{MODEL}").decode().strip()
    here.git("rm", "-q", "--cached", MODEL)
    lines = "".join(f"100644 {oid} {stage}\t{MODEL}\n" for stage in (1, 2, 3))
    here.git("update-index", "--index-info", stdin=lines.encode())
    here.call("add", MODEL)
    assert here.git("ls-files", "-u") == b""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linked", "submodule", "sha256", "git-dir", "shallow", "partial"])
def test_repositories_of_all_kinds(
    here: Sealed, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write(MODEL, safetensors(1.0))
    here.add()
    here.commit()
    place = here
    if kind == "linked":
        here.git("worktree", "add", "-q", "../linked")
        place = Sealed(here.path.parent / "linked")
    elif kind == "submodule":
        outer = new_repo(tmp_path / "outer")
        outer.git("submodule", "--quiet", "add", str(here.path), "inner")
        place = Sealed(outer.path / "inner")
    elif kind == "sha256":
        place = Sealed(new_repo(tmp_path / "other", "sha256").path)
        place.track("*.safetensors")
    elif kind == "git-dir":
        monkeypatch.setenv("GIT_DIR", str(here.path / ".git"))
        monkeypatch.setenv("GIT_WORK_TREE", str(here.path))
    elif kind == "shallow":
        place = Sealed(here.clone("clone", "--depth=1").path)
    else:
        here.git("config", "uploadpack.allowFilter", "true")
        place = Sealed(here.clone("clone", "--no-local", "--filter=blob:none").path)
    place.write(MODEL, safetensors(5.0, 6.0))
    place.write("sub/other.safetensors", safetensors(7.0))
    place.call("add", ".")
    by_us = staged(place)
    place.git("add", "--renormalize", ".")
    assert staged(place) == by_us
    assert place.git("fsck", "--full", "--strict", "--no-dangling") == b""
    place.commit("second")
    assert place.status() == b""


def test_a_bare_repository_has_nothing_to_add(tmp_path: Path) -> None:
    bare = Sealed(new_repo(tmp_path / "bare", "sha1", "--bare").path)
    assert "work tree" in bare.call("add", ".", ok=(5,)).err


def test_a_sparse_checkout_is_respected(here: Sealed) -> None:
    for name in ("in/a", "out/b"):
        here.write(f"{name}.safetensors", safetensors(1.0))
    here.add()
    here.commit()
    here.git("sparse-checkout", "set", "--cone", "in")
    here.write("in/a.safetensors", safetensors(2.0))
    for name in ("new", "b"):
        here.write(f"out/{name}.safetensors", safetensors(3.0))
    before = here.git("ls-files", "--stage", "out")
    here.call("add", "-A", ok=(0, 1))
    here.call("add", "in")
    here.call("add", "out", ok=(1,))
    assert here.git("ls-files", "--stage", "out") == before
    assert here.git("diff", "--cached", "--name-only") == b"in/a.safetensors\n"


@pytest.mark.parametrize("named", [(".",), ("-u",), ("in/a.safetensors", "out/b.safetensors")])
def test_a_file_that_stands_outside_of_a_sparse_checkout_stays_out(
    here: Sealed, named: tuple[str, ...]
) -> None:
    for name in ("in/a", "out/b"):
        here.write(f"{name}.safetensors", safetensors(1.0))
    here.add()
    here.commit()
    here.git("sparse-checkout", "set", "--cone", "in")
    for name in ("in/a", "out/b"):
        here.write(f"{name}.safetensors", safetensors(2.0))
    code = here.run("git", "add", *named, ok=(0, 1)).returncode
    by_git = here.git("ls-files", "--stage")
    here.git("reset", "-q")
    here.call("add", *named, ok=(code,))
    assert here.git("ls-files", "--stage") == by_git
    assert here.git("diff", "--cached", "--name-only") == b"in/a.safetensors\n"


def test_names_that_are_odd(here: Sealed) -> None:
    names = [b"-n.safetensors", b"new\nline.safetensors", b"\xff\xfe.safetensors",
             b":(top).safetensors", b"*.safetensors", b"a b'\".safetensors"]  # fmt: skip
    for number, name in enumerate(names):
        here.write(name, safetensors(float(number)))
    assert_as_git_adds(here, ".")


def test_the_index_tells_the_files_own_stat(here: Sealed) -> None:
    file = here.write(MODEL, safetensors(1.0))
    here.call("add", MODEL)
    told = here.git("ls-files", "--debug", MODEL).decode()
    status = file.stat()
    assert f"mtime: {status.st_mtime_ns // 10**9}:{status.st_mtime_ns % 10**9}\n" in told
    assert f"ino: {status.st_ino & 0xFFFFFFFF}\n" in told
    assert f"size: {status.st_size}\t" in told
    assert stat.S_ISREG(status.st_mode)


@pytest.mark.parametrize("stored", [True, False])
def test_git_add_finds_what_the_filter_stored(here: Sealed, stored: bool) -> None:
    """Git adds with the filter, which writes large texts as objects; a dry run writes none."""
    here.write(MODEL, safetensors(*range(300_000)))
    here.git("add", *(() if stored else ("-n",)), MODEL)
    loose = list((here.path / ".git/objects").glob("??/*"))
    # Besides the attributes' own.
    assert len(loose) == (2 if stored else 1)
    if stored:
        # Deflated by us: what stands before the text is stored.
        (largest,) = [path for path in loose if path.stat().st_size > 10_000]
        assert b"blob 1668618\0" in largest.read_bytes()[:30]
        assert here.git("fsck", "--full", "--strict", "--no-dangling") == b""
    here.git("status")
    assert len(list((here.path / ".git/objects").glob("??/*"))) == len(loose)
