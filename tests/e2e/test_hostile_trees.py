"""Trees that git itself would never make: names that lead out, links, repositories, attributes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.hostile import Entry, entries, store, tree_of
from tests.e2e.sealed import Sealed
from tests.kit import Repo, safetensors, text_of

pytestmark = pytest.mark.slow

MODEL = b"model.safetensors"
OURS = (MODEL, MODEL + b".wsum", b".wtxt", b".gitattributes", b"sub", b"new.safetensors")
"""Paths that commands write, or read what they are to do from."""
FILES = (
    *(b"..", b".", b"", b".git", b".GIT", b"git~1", b".gi\xe2\x80\x8ct", b"../out.safetensors"),
    *(b"a/../../out.safetensors", b"..\\out.safetensors", b"C:\\out.safetensors", b"CON"),
    *(b"aux.safetensors", b"model.safetensors:ads", b"model.safetensors.", b"Model.safetensors"),
    *(b"x\ny.safetensors", b"-rf.safetensors", b"a//b.safetensors", b"\xff\xfe.safetensors"),
    *(b":(top)x.safetensors", b"--output=x.safetensors"),
)
FOLDERS = (b"..", b".", b"", b"/", b".git", b".GIT", b"git~1", b"../outside", b".git/hooks")
ATTRIBUTES = b"""\
[attr]binary filter=evil diff=evil merge=evil
* filter=wtxt diff=evil merge=evil
.gitattributes filter=wtxt
.wtxt/signers filter=wtxt
*.safetensors filter=evil binary
"""
COMMANDS = (
    *("status", "ls-files HEAD", "checkout", "checkout HEAD -- .", "add -A", "check --staged"),
    *("seal --staged --key alice", "review root..HEAD", "audit --trust-root root"),
    *("signers threshold 1", "track *.gguf", "install --local --hooks", "doctor --fix"),
)


def names(repo: Repo, at: Path) -> Iterator[Entry]:
    blob = store(repo, text_of(safetensors(6.0)))
    yield from ((b"100644", name, blob) for name in (*FILES, os.fsencode(at / "out.safetensors")))


def folders(repo: Repo, at: Path) -> Iterator[Entry]:
    script = store(repo, f"#!/bin/sh\necho >{at}/ran\n".encode())
    inner = tree_of(repo, [(b"100755", b"pre-commit", script), (b"100755", b"out", script)])
    yield from ((b"40000", name, inner) for name in FOLDERS)


def links(repo: Repo, at: Path) -> Iterator[Entry]:
    target = store(repo, os.fsencode(at / "outside/victim"))
    yield from ((b"120000", name, target) for name in OURS)


def links_of_folders(repo: Repo, at: Path) -> Iterator[Entry]:
    target = store(repo, b"../outside")
    yield from ((b"120000", name, target) for name in OURS)


def links_into_git(repo: Repo, at: Path) -> Iterator[Entry]:
    target = store(repo, b".git/hooks/pre-commit")
    yield from ((b"120000", name, target) for name in OURS)


def repositories(repo: Repo, at: Path) -> Iterator[Entry]:
    head = repo.git("rev-parse", "HEAD").decode().strip()
    modules = f'[submodule "s"]\n\tpath = sub\n\turl = ../outside\n\tupdate = !echo >{at}/ran\n'
    yield from ((b"160000", name, head) for name in OURS)
    yield b"100644", b".gitmodules", store(repo, modules.encode())


def attributes(repo: Repo, at: Path) -> Iterator[Entry]:
    evil = f'[{{}} "evil"]\n\t{{}} = echo >{at}/ran\n'
    pairs = (("filter", "clean"), ("filter", "smudge"), ("diff", "command"), ("merge", "driver"))
    config = "".join(evil.format(*pair) for pair in pairs) + "[core]\n\thooksPath = .\n"
    script = store(repo, f"#!/bin/sh\necho >{at}/ran\n".encode())
    yield b"100644", b".gitattributes", store(repo, ATTRIBUTES)
    yield from (
        (b"100644", name, store(repo, config.encode())) for name in (b".gitconfig", b"config")
    )
    yield from ((b"100755", name, script) for name in (b"pre-commit", b"post-checkout"))


def contents(folder: Path) -> dict[str, object]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "hostile",
    [names, folders, links, links_of_folders, links_into_git, repositories, attributes],
    ids=lambda one: one.__name__,
)
def test_nothing_leads_out_of_the_work_tree_and_nothing_runs(
    base: Sealed, tmp_path: Path, hostile: Callable[[Repo, Path], Iterator[Entry]]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_bytes(safetensors(5.0))
    there = entries(base, base.git("rev-parse", "HEAD^{tree}").decode().strip())
    made = list(hostile(base, tmp_path))
    rows = [row for row in there if row[1] not in {name for _, name, _ in made}] + made
    rows.sort(key=lambda row: row[1] + b"/" * (row[0] == b"40000"))
    tree = tree_of(base, rows)
    commit = base.git("commit-tree", tree, "-p", "HEAD", "-m", "evil").decode().strip()
    base.git("update-ref", "HEAD", commit)
    # What git itself makes of it, as far as it goes.
    base.run("git", "read-tree", tree, ok=(0, 128))
    base.run("git", "checkout", "-f", ok=(0, 1, 128))
    inside = contents(base.path / ".git/hooks")
    before = contents(outside), sorted(path.name for path in tmp_path.iterdir())
    for line in COMMANDS:
        said = base.call(*line.split(), ok=range(6))
        assert "Traceback" not in said.err, (line, said)
        now = contents(outside), sorted(path.name for path in tmp_path.iterdir())
        assert now == before, (line, said)
    hooks = contents(base.path / ".git/hooks")
    ours = {name for name, text in hooks.items() if b"wtxtgit-hook" in (text or b"")}  # type: ignore[operator]
    assert {name: text for name, text in hooks.items() if name not in ours} == inside
    assert "evil" not in (base.path / ".git/config").read_text()
