"""The fast path of the pre-commit hook: skips a check whose result is known.

Every commit is checked, but most change nothing that the check (`chain.check`) looks at. If all of
these rules hold, it would find nothing, and is skipped:

1. HEAD has one parent, and the changes between the two were checked with the
   same program and trust root, and nothing was found: a note of this user says
   so, authenticated by their secret.
2. The commit has HEAD as its only parent: nothing is being merged, picked or
   reverted, and git reports no merge. Nothing is sealed on the way.
3. Files are changed or removed: no name is new, and none becomes a link, a
   submodule or a conflict.
4. None of them decides what is checked: gitattributes, ledgers, signers, texts.
5. None of them has a ledger beside it.
6. None of them goes through the filter, according to the index's own
   gitattributes files.
7. The history is whole: not shallow, with no object replaced.

Because of 3 to 6, everything that the check looks at is the same as in HEAD, and because of 3 no
other file is in its way. Because of 1, 2 and 7, the same records say who is trusted as when HEAD
was checked. So the result would be the same.

In all other cases, and after any error, the check runs.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from wtxtgit.errors import WtxtgitError
from wtxtgit.git import history, run
from wtxtgit.git.attributes import TreeAttributes
from wtxtgit.git.blobs import CatFiles, check_oid
from wtxtgit.git.history import Head
from wtxtgit.git.repository import TRUST_ROOT, Repository
from wtxtgit.git.trees import TreeEntry
from wtxtgit.version import __version__

FILE_NAME = "checked"
_NOTE_SIZE = 32
_MOST_NOTES = 256
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD")
_OUR_NAMES = (b".gitattributes", b".wtxt", b".wsum")
_FILES = (b"100644", b"100755")
_NONE = b"000000"
_MOST_PATHS = 1000
_OID = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_RAW = ("--raw", "-r", "-z", "--no-renames", "--ignore-submodules=none")
_ATTRIBUTES = b":(top,glob)**/.gitattributes"


def is_settled(head: Head, key_file: Path | None) -> bool:
    """Tell whether the check of the index would find nothing, by the rules above.

    If so, note it.
    """
    repo = head.repo
    try:
        notes = _notes(repo)
        if not notes or is_under_way(repo):  # (1), (2)
            return False
        secret = _secret(key_file, make=False)
        if secret is None:
            return False
        shared = CatFiles.of(repo)
        shared.enter()
        try:
            commit = head.commit
            if commit is None or len(commit.parents) != 1:  # (1)
                return False
            parent = commit.parents[0]
            changes = repo.git("diff-tree", *_RAW, parent, commit.oid, env=run.TRUE_OBJECTS)
            if _note(repo, secret, parent, changes) not in notes:
                return False
            staged = _staged(repo, commit.oid)
            if not _is_unrelated(repo, staged):
                return False
            history.refuse_altered(repo)  # (7)
            _write(repo, notes, _note(repo, secret, commit.oid, staged))
        finally:
            shared.leave()
    except (WtxtgitError, OSError, ValueError):
        return False
    return True


def remember(head: Head, key_file: Path | None) -> None:
    """Note that the index was checked on top of HEAD, and nothing was found."""
    repo = head.repo
    try:
        commit = head.commit
        if commit is None or is_under_way(repo):
            return
        secret = _secret(key_file, make=True)
        if secret is not None:
            note = _note(repo, secret, commit.oid, _staged(repo, commit.oid))
            _write(repo, _notes(repo), note)
    except (WtxtgitError, OSError, ValueError):
        # Without a note, the next check runs in full.
        return


def _is_unrelated(repo: Repository, staged: bytes) -> bool:
    """Check rules 3 to 6 for what is staged."""
    fields = run.records(staged)
    paths = []
    for details, path in zip(fields[::2], fields[1::2], strict=True):
        before, after, _, _, state = details.removeprefix(b":").split(b" ")
        is_kept_name = (state, after in _FILES) == (b"M", True) or (state, after) == (b"D", _NONE)
        if before not in _FILES or not is_kept_name:  # (3)
            return False
        if any(name in path.lower() for name in _OUR_NAMES):  # (4)
            return False
        paths.append(path)
    ledgers = [b":(top,literal)" + path + b".wsum" for path in paths]
    if len(paths) > _MOST_PATHS or not run.fit([_ATTRIBUTES, *ledgers]):
        return False
    attribute_files = {}
    for entry in run.records(repo.git("ls-files", "-s", "-z", "--", _ATTRIBUTES, *ledgers)):
        details, _, path = entry.partition(b"\t")
        mode, oid, stage = details.split(b" ")
        if path.endswith(b".wsum") or stage != b"0":  # (5)
            return False
        if TreeEntry(path, int(mode, 8), oid.decode("ascii")).is_file:
            attribute_files[path] = check_oid(oid.decode("ascii"))
    with TreeAttributes(repo) as attributes:
        return not attributes.filtered(attribute_files, paths)  # (6)


def is_under_way(repo: Repository) -> bool:
    """Tell whether a merge, cherry-pick, revert or rebase is in progress."""
    return any((repo.git_dir / name).exists() for name in _UNDER_WAY)


def _staged(repo: Repository, head: str) -> bytes:
    """Return what the index changes compared with HEAD, in the format of `git diff-tree`."""
    return repo.git("diff-index", "--cached", *_RAW, head, "--", env=run.TRUE_OBJECTS)


def _secret(key_file: Path | None, *, make: bool) -> bytes | None:
    if key_file is None:
        return None
    # Needed only if there are notes, or will be.
    from wtxtgit.trust.local_secret import local_secret

    return local_secret(key_file, make=make)


def _note(repo: Repository, secret: bytes, parent: str, changes: bytes) -> bytes:
    """Return the note about a check; raises ValueError if the trust root may later mean another."""
    root = repo.config.get(TRUST_ROOT)
    if root is not None and not _OID.fullmatch(root):
        raise ValueError(root)
    checked = "\0".join((__version__, root or "", parent, "")).encode("ascii") + changes
    return hashlib.blake2b(checked, digest_size=_NOTE_SIZE, key=secret).digest()


def _notes(repo: Repository) -> list[bytes]:
    try:
        with (repo.state_path / FILE_NAME).open("rb") as file:
            content = file.read(_MOST_NOTES * _NOTE_SIZE)
    except FileNotFoundError:
        return []
    return [content[at : at + _NOTE_SIZE] for at in range(0, len(content), _NOTE_SIZE)]


def _write(repo: Repository, notes: list[bytes], note: bytes) -> None:
    """Add a note in front. Of two concurrent writers one may lose its note, which costs a check."""
    if note in notes:
        return
    from wtxtgit.io.temporary import new_file, opened_folder

    folder = repo.state_dir()
    with opened_folder(folder) as descriptor, new_file(descriptor, folder) as file:
        os.write(file.descriptor, b"".join([note, *notes[: _MOST_NOTES - 1]]))
        file.put(FILE_NAME)
