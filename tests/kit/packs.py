"""Packs of payload at a git remote, read behind its back."""

from __future__ import annotations

from pathlib import Path

from wtxtgit.git import run


def blobs_of(bare: Path, ref: str) -> dict[str, str]:
    """The blobs that a ref leads to, by the names that they have in a tree; "" for a lone one."""
    if run.git("cat-file", "-t", ref, cwd=bare) == b"blob\n":
        return {"": run.git("rev-parse", ref, cwd=bare).decode().strip()}
    listed = run.git("ls-tree", "--format=%(path) %(objectname)", ref, cwd=bare).decode()
    return dict(line.split() for line in listed.splitlines())


def content_of(bare: Path, ref: str) -> bytes:
    """What a pack has, or its end."""
    blobs = blobs_of(bare, ref)
    if "index" in blobs:
        blobs = {"": blobs["index"]}
    return b"".join(run.git("cat-file", "blob", oid, cwd=bare) for _, oid in sorted(blobs.items()))
