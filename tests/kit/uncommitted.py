"""Work that no commit has yet, which no hint may take away."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.kit import Repo
from wtxtgit.filter.clean import clean
from wtxtgit.git import run

ATTRIBUTE = b"*.mine -diff\n"
STASHED, STAGED, EDITED, UNTRACKED = b"stashed\n", b"staged\n", b"edited\n", b"untracked\n"


def begin_work(repo: Repo, *, with_attributes: bool = True) -> None:
    """Leave work of each kind: in the stash, staged, edited since, untracked, and attributes."""
    if repo.run("git", "rev-parse", "-q", "--verify", "HEAD", ok=(0, 1)).returncode == 0:
        _stash(repo, STASHED)
    repo.write("work.txt", STAGED)
    repo.git("add", "-f", "work.txt")
    repo.write("work.txt", EDITED)
    repo.write("untracked.txt", UNTRACKED)
    if with_attributes:
        with (repo.path / ".gitattributes").open("ab") as file:
            file.write(ATTRIBUTE)


def _stash(repo: Repo, content: bytes) -> None:
    """Add a stash of one file; `git stash` itself would run filters, and refuses conflicts."""
    blob = repo.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
    tree = repo.git("mktree", stdin=f"100644 blob {blob}\tstashed.txt\n".encode()).decode().strip()
    parents = ["-p", "HEAD"]
    for message in ("index", "work tree"):
        made = repo.git("commit-tree", tree, *parents, "-m", message).decode().strip()
        parents += ["-p", made]
    repo.git("stash", "store", made)


def uncommitted(repo: Repo) -> dict[str, bytes]:
    """The contents that no commit has, each named by the place where it is.

    Of a checkpoint, file and text count as the same.
    """
    committed = {_alike(content) for content in _blobs(repo, _reachable(repo, "HEAD"))}
    found = {}
    for file in _files(repo):
        found[f"file {file.relative_to(repo.path)}"] = _read(file)
    for line in run.records(repo.git("ls-files", "-s", "-z")):
        details, _, path = line.partition(b"\t")
        (content,) = _blobs(repo, [details.split()[1].decode()])
        found[f"index {path.decode('utf-8', 'replace')}"] = content
    for number, oid in enumerate(_stashes(repo)):
        for content in _blobs(repo, _reachable(repo, oid)):
            found[f"stash {number} {len(found)}"] = content
    return {name: content for name, content in found.items() if _alike(content) not in committed}


def assert_kept(repo: Repo, before: dict[str, bytes], *, but: Iterable[str] = ()) -> None:
    """Each of the contents is still in a file, the index, the stash, or a commit by now."""
    places = [
        *map(_read, _files(repo)),
        *_blobs(repo, _reachable(repo, "--all", "--", "HEAD", *_stashes(repo))),
        *_blobs(
            repo, [line.split()[1].decode() for line in repo.git("ls-files", "-s").splitlines()]
        ),
    ]
    kept = {_alike(content) for content in places}
    lost = {
        name: content
        for name, content in before.items()
        if _alike(content) not in kept
        # Lines that `track` writes come after those of the user.
        and not any(one.startswith(content) for one in places if name.endswith(".gitattributes"))
        and not name.endswith(tuple(but))
    }
    assert not lost


def _files(repo: Repo) -> Iterator[Path]:
    for file in repo.path.rglob("*"):
        if ".git" not in file.relative_to(repo.path).parts and (
            file.is_symlink() or file.is_file()
        ):
            yield file


def _read(file: Path) -> bytes:
    return os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()


def _stashes(repo: Repo) -> list[str]:
    return repo.git("stash", "list", "--format=%H").decode().split()


def _reachable(repo: Repo, *revisions: str) -> list[str]:
    given = [one for one in revisions if one != "--"]
    done = repo.run("git", "rev-list", "--objects", *given, ok=(0, 128))
    return [line.split()[0].decode() for line in done.stdout.splitlines()]


def _blobs(repo: Repo, oids: Iterable[str]) -> Iterator[bytes]:
    with_kinds = "".join(f"{oid}\n" for oid in dict.fromkeys(oids))
    output = repo.git("cat-file", "--batch", stdin=with_kinds.encode())
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        head = output[at:end].split()
        # A submodule's commit, or what a partial clone lacks.
        if head[-1] == b"missing":
            at = end + 1
            continue
        content = output[end + 1 : end + 1 + int(head[2])]
        at = end + 2 + int(head[2])
        if head[1] == b"blob":
            yield content


def _alike(content: bytes) -> bytes:
    return b"".join(clean(memoryview(content), threads=1).pieces())
