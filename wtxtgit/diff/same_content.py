"""Whether two sides of a comparison are known to be one content, before either is read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from wtxtgit.checkpoint.open import blob_name, is_blob, read
from wtxtgit.filter.content import Known, file_digest
from wtxtgit.git import history
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import view_file
from wtxtgit.io.view import ByteView
from wtxtgit.remotes import urls


def same_content(a: str, b: str, key_file: Path | None) -> ByteView | None:
    """The one content of two targets, where it is known that they have one; None else.

    Two blobs are one by their ids. A file and a blob are where `filter.content`
    knows, under the secret in `key_file`, that clean makes the blob of that
    file: that takes one hash, where git would inflate the blob. Raises what
    reading a target does.
    """
    blobs = [target for target in (a, b) if is_blob(target)]
    if not blobs:
        return None
    repo = Repository.discover()
    oids = [history.resolve_blob(repo, blob_name(target, repo)) for target in blobs]
    if len(oids) > 1:
        return read(a) if oids[0] == oids[1] else None
    file = b if blobs == [a] else a
    if urls.is_url(file):
        return None
    with Known.open(repo, key_file) as known:
        held = known.file_of(oids[0])
    return view_file(Path(file)) if held is not None and _is(file, *held) else None


def _is(file: str, digest: bytes, size: int) -> bool:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # Whoever reads it says why that can't be.
        return False
    try:
        status = os.fstat(descriptor)
        is_as_long = stat.S_ISREG(status.st_mode) and status.st_size == size
        return is_as_long and file_digest(descriptor) == (digest, size)
    except OSError:
        return False
    finally:
        os.close(descriptor)
