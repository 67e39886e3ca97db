"""Attach and detach: a text file in its other form, with its payload in the repository's store.

A text is only replaced by one that was read again and has the same root, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from wtxtgit.checkpoint.open import (
    attached_pieces,
    described,
    payload_for,
    refuse_text,
    repository_of,
)
from wtxtgit.errors import InputError
from wtxtgit.filter.payload import keeping
from wtxtgit.io.files import shown, view_file, write_output
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView, pieces, write_all
from wtxtgit.remotes.lfs_pointer import refuse_pointer
from wtxtgit.text.detached import rewritten
from wtxtgit.text.grammar import is_detached, is_text
from wtxtgit.text.verify import verify

Write = Callable[[Iterable[Buffer]], None]


def attach(
    path: Path,
    out: Path | None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    write: Write | None = None,
) -> None:
    """Write the attached form of a text to `out`, or through `write` if it is None.

    An attached text is written as it is. Raises InputError if the file is no text, CheckError for
    one that does not verify, or whose payload is not at hand.
    """
    text = _read(path)
    if is_detached(text):
        payload = payload_for(str(path), text)
        made = attached_pieces(shown(path), text, payload, threads=threads, progress=progress)
        _put(made, out, write)
        return
    refuse_text(verify(text, threads=threads, progress=progress), shown(path))
    if out != path:
        _put(pieces(text), out, write)


def detach(
    path: Path,
    out: Path | None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    write: Write | None = None,
) -> None:
    """Write the detached form of a text, after putting its payload into the store.

    The store is that of the repository that `path` is in, else that of the current folder;
    EnvironmentFailure if there is none. Otherwise as `attach`; a text that is detached already
    needs no payload.
    """
    text = _read(path)
    report = verify(text, threads=threads, progress=progress)
    if is_detached(text):
        if not report.lacks_payload:
            refuse_text(report, shown(path))
        if out != path:
            _put(pieces(text), out, write)
        return
    refuse_text(report, shown(path))
    repo = repository_of(str(path))
    with (
        keeping(repo) as keep,
        rewritten(
            text,
            report.index,
            report.layout,
            detached=True,
            name=shown(path),
            keep=keep,
            threads=threads,
        ) as writer,
    ):
        made = b"".join(writer.stream())
    _put((made,), out, write)


def _read(path: Path) -> ByteView:
    text = view_file(path)
    if not is_text(text):
        refuse_pointer(shown(path), text)
        raise InputError(f"{shown(path)}: not a WTXT text{described(text)}")
    return text


def _put(content: Iterable[Buffer], out: Path | None, write: Write | None) -> None:
    if out is not None:
        write_output(out, lambda descriptor: write_all(descriptor, content))
    elif write is not None:
        write(content)
