"""Strict checks of checkpoints beyond their texts, as by `verify --strict`.

A text that verifies may be that of a damaged checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from wtxtgit.checkpoint.open import as_checked_out, blob
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.identity import identity, wrong_under
from wtxtgit.git.repository import Repository
from wtxtgit.model.array import NO_PAYLOAD
from wtxtgit.remotes.lfs_pointer import read_pointer
from wtxtgit.report.audit import ODD_CHECKPOINT, UNCHECKED, Finding
from wtxtgit.store.place import store_of
from wtxtgit.text.grammar import is_detached, is_text


def judge_contents(repo: Repository, commit: str, blobs: Mapping[bytes, str]) -> Iterator[Finding]:
    """Check the checkpoints that a checkout would write of these blobs, by path; sets are left out.

    Raises EnvironmentFailure if git can't return a blob.
    """
    for path, oid in blobs.items():
        # A part of a set can't be checked alone: the set's index says what it contains.
        if registry.part_note(os.fsdecode(path)) is not None:
            continue
        content = blob(repo, oid)
        # A pointer is reported elsewhere.
        if read_pointer(content) is not None:
            continue
        payload = (is_detached(content) and store_of(repo)) or NO_PAYLOAD
        data = as_checked_out(os.fsdecode(path), content, None, payload=payload).data
        # A native or a damaged text, or one whose data is not here, which is reported elsewhere.
        if is_text(data):
            continue
        if (wrong := wrong_under(os.fsdecode(path), identity(data))) is not None:
            yield Finding(commit, path, ODD_CHECKPOINT, wrong)
            continue
        if any_format.identify(data) in (None, *registry.set_names()):
            continue
        findings = any_format.check(data)
        for problem in (*findings.errors, *findings.warnings)[:1]:
            kind = UNCHECKED if problem.is_unread else ODD_CHECKPOINT
            yield Finding(commit, path, kind, str(problem))
