"""What a migration of a history would involve: its checkpoints by pattern, and their costs.

For each path only the latest version is examined; the others are assumed to be like it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from wtxtgit.containers import any_format
from wtxtgit.git.blobs import known_sizes
from wtxtgit.git.fast_stream import scratch
from wtxtgit.git.history import refuse_altered
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.lfs_objects import LfsObjects
from wtxtgit.remotes.lfs_pointer import pointed_of
from wtxtgit.report.migrate import HistoryFiles, PatternFiles
from wtxtgit.rewrite.refs import chosen_refs, refuse_partial
from wtxtgit.setup.sizes import DETACHED_PART, max_blob
from wtxtgit.text.grammar import MOST_ATTACHED, is_text, text_size

_REGULAR = (0o100644, 0o100755)
_POINTERS = "git-lfs"
_TEXT = "text"


@dataclass
class _Group:
    """The files of a pattern, with the sizes of their versions."""

    files: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    formats: Counter[str] = field(default_factory=Counter)
    compressed: int = 0
    pointers: set[str] = field(default_factory=set)


def history_files(
    repo: Repository,
    names: Sequence[str] = (),
    *,
    everything: bool = False,
    progress: Progress | None = None,
) -> HistoryFiles:
    """Return the checkpoints of all commits that the refs reach, by file ending, largest first.

    Raises EnvironmentFailure if the history is not complete here, and UsageError for a name that is
    not a branch or tag.
    """
    refuse_altered(repo)
    chosen = chosen_refs(repo, names, everything=everything)
    tips = list(dict.fromkeys(ref.commit for ref in chosen))
    # Contents are fetched when they are asked for.
    refuse_partial(repo, tips, "--filter=blob:none")
    versions: dict[bytes, dict[str, None]] = {}
    commits = 0
    with scratch(repo) as streams:
        for commit in streams.exported(tips):
            commits += 1
            for change in commit.changes:
                if change.oid is not None and change.mode in _REGULAR:
                    oids = versions.setdefault(change.path, {})
                    # The last one listed is the latest version.
                    oids.pop(change.oid, None)
                    oids[change.oid] = None
    sizes = known_sizes(repo, {oid for oids in versions.values() for oid in oids})
    objects = pointed_of(repo, sizes)
    sizes.update((oid, lfs_object.nbytes) for oid, lfs_object in objects.items())
    objects_here = LfsObjects(repo)
    groups: dict[str, _Group] = {}
    expect(progress, sum(sizes.get(next(reversed(oids))) or 0 for oids in versions.values()))
    expect(progress, 0, len(versions))
    with ObjectStore(repo) as store:
        for path, oids in versions.items():
            last = next(reversed(oids))
            finish_file(progress)
            if not sizes.get(last):
                continue
            content: ByteView | None
            content = (
                objects_here.held(objects[last]) if last in objects else spooled(store.blob(last))
            )
            kind = _POINTERS if content is None else _format(content)
            if progress is not None:
                progress(sizes[last])
            if kind is None:
                continue
            group = groups.setdefault(_pattern(path), _Group())
            group.files += 1
            group.sizes.update((oid, sizes[oid]) for oid in oids if oid in sizes)
            group.formats[kind] += 1
            group.pointers |= objects.keys() & oids.keys()
            if content is not None and kind != _TEXT and any_format.is_compressed(content):
                group.compressed += len(oids)
    limit = max_blob(repo)
    rows = [_row(pattern, group, limit) for pattern, group in groups.items()]
    rows.sort(key=lambda row: (-row.size, row.pattern))
    return HistoryFiles(commits, limit, tuple(rows))


def _format(content: ByteView) -> str | None:
    if is_text(content):
        return _TEXT
    return any_format.identify(content)


def _pattern(path: bytes) -> str:
    name = os.fsdecode(path.rpartition(b"/")[2])
    ending = os.path.splitext(name)[1]  # noqa: PTH122 - a name may be no path of this system
    return f"*{ending}" if ending else name


def _row(pattern: str, group: _Group, limit: int) -> PatternFiles:
    formats = tuple(name for name, _ in group.formats.most_common())
    texts = [text_size(size) for size in group.sizes.values()]
    return PatternFiles(
        pattern,
        group.files,
        len(group.sizes),
        sum(group.sizes.values()),
        formats,
        group.compressed < len(group.sizes),
        group.compressed,
        len(group.pointers),
        sum(size > limit for size in texts),
        sum(texts),
        sum(s if s <= MOST_ATTACHED else max(1, s // DETACHED_PART) for s in texts),
    )
