"""Restore: turns a text back into the file that it stands for.

No file gets its name unless the whole text verifies. A native snapshot becomes a
checkpoint in the format that the ending of the output names.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from wtxtgit.checkpoint.contents import native_tensors
from wtxtgit.checkpoint.convert import source_of, write_tensors
from wtxtgit.checkpoint.open import (
    described,
    payload_for,
    read,
    refuse_text,
    shown_name,
    wsum_beside,
)
from wtxtgit.checkpoint.wsum import given_wsum
from wtxtgit.containers import registry
from wtxtgit.errors import InputError, UsageError
from wtxtgit.io.files import write_output
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.view import Buffer, ByteView, counted, write_all
from wtxtgit.model.array import Snapshot
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.text.arrays import snapshot_of
from wtxtgit.text.file import array_bytes, assumed_layout, file_pieces
from wtxtgit.text.grammar import is_text
from wtxtgit.text.index import index
from wtxtgit.text.restoring import verify_into
from wtxtgit.text.verify import TextReport, verify

TEXT_ENDING = ".wtxt"


def restore(
    target: str,
    out: Path | None,
    *,
    wsum: Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    write: Callable[[Iterable[Buffer]], None] | None = None,
) -> None:
    """Restore a text to the file `out`, or through `write` if it is None.

    `target` is a file, a URL, or a blob as REV:PATH.
    """
    text, name = read(target, threads=threads), shown_name(target)
    if not is_text(text):
        known = registry.detected(text)
        if known is not None:
            hint = f"wtxtgit emit -- {shlex.quote(name)} makes its text"
            raise InputError(f"{name}: not a WTXT text, but a file ({known.name})", hint=hint)
        raise InputError(f"{name}: not a WTXT text{described(text)}")
    wsum_bytes = wsum_beside(target) if wsum is None else given_wsum(wsum)
    indexed = index(text, payload=payload_for(target, text))
    indexed.want_payload()
    # The layout is used before it is verified; the written file only counts if everything verifies.
    assumed = None if out is None else assumed_layout(text, indexed)
    # In one pass: the file is written while the text is verified, and gets its name only if all is
    # valid.
    if out is not None and assumed is not None:

        def fill(descriptor: int) -> None:
            report, is_whole = verify_into(
                descriptor,
                text,
                indexed,
                assumed,
                wsum=wsum_bytes,
                threads=threads,
                progress=progress,
            )
            refuse_text(report, name)
            if not is_whole:
                raise InputError(f"{name}: changed while it was read")

        write_output(out, fill)
        return
    report = verify(text, indexed=indexed, wsum=wsum_bytes, threads=threads, progress=progress)
    refuse_text(report, name)
    restore_verified(text, report, name, out, write=write, threads=threads)


def restore_verified(
    text: ByteView,
    report: TextReport,
    name: str,
    out: Path | None,
    *,
    write: Callable[[Iterable[Buffer]], None] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Restore a text that `report` says is valid; messages call it `name`.

    `progress` gets counts of bytes that were written. Otherwise as `restore`.
    """
    layout = report.layout
    # A native snapshot stands for no file: one is made of its arrays.
    if layout is None or layout.size is None:
        arrays = array_bytes(text, report.index, threads=threads)
        held = {array: data.data for array, data in arrays.items()}
        restore_native(snapshot_of(report.index, layout, held), name, out)
        return
    expect(progress, layout.size)
    pieces = counted(file_pieces(text, report.index, layout, threads=threads), progress)
    if out is not None:
        write_output(out, lambda fd: write_all(fd, pieces))
    elif write is not None:
        write(pieces)


def restore_native(snapshot: Snapshot, name: str, out: Path | None) -> None:
    """Write a file of arrays, in the format of its ending; messages call them `name`.

    Raises UsageError for another ending, and InputError for what such a file can't hold.
    """
    if out is None or registry.by_ending(out.suffix) is None:
        raise UsageError(
            f"{name} is a native snapshot: the ending of -o chooses the format to write",
            hint=f"wtxtgit restore -o FILE.safetensors -- {shlex.quote(name)}",
        )
    listed = native_tensors(snapshot.arrays, snapshot.layout)
    data = {array.name: array.data for array in snapshot.arrays}
    tensors = (replace(tensor, held=data[array]) for array, tensor in listed)
    write_tensors(out, [source_of(name, one) for one in tensors], {}, ReadOptions())
