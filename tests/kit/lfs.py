"""What git-lfs leaves behind when it adds a file."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from wtxtgit.remotes.lfs_pointer import LfsObject, format_pointer


def kept_by_lfs(storage: Path, content: bytes) -> tuple[bytes, Path]:
    """Have the object of a content in git-lfs's folder; gives the pointer, and the object's file.

    `storage` is the `lfs` in a git directory.
    """
    to = LfsObject(sha256(content).hexdigest(), len(content))
    path = storage / "objects" / to.sha256[:2] / to.sha256[2:4] / to.sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return format_pointer(to), path
