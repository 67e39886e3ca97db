"""numpy arrays in WTXT files: the Python interface.

wtxtgit.dump({"W": w}, "step-100.wtxt", meta=wtxtgit.Meta(gen=100))
weights = wtxtgit.load("step-100.wtxt")
with wtxtgit.open("step-100.wtxt") as snapshot:
    rows = snapshot["W"][128:256]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import warn

from numpy.typing import ArrayLike

from wtxtgit.checkpoint.finalize import Finalized
from wtxtgit.checkpoint.finalize import finalize as finalize_file
from wtxtgit.checkpoint.open import payload_for
from wtxtgit.checkpoint.wsum import wsum_at, wsum_path
from wtxtgit.errors import DamageWarning, InputError, counted
from wtxtgit.io.files import shown, view_file, write_output
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.array import Meta, Snapshot
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.remotes.lfs_pointer import refuse_pointer
from wtxtgit.text import verify as text_verify
from wtxtgit.text import write
from wtxtgit.text.arrays import LazySnapshot, Weights, read, snapshot_from
from wtxtgit.text.verify import TextReport
from wtxtgit.text.write import Signer, TextWriter

if TYPE_CHECKING:  # what converts checkpoints is not needed for texts
    from wtxtgit.checkpoint.salvage import ContainerRecovery

File = str | PathLike[str]


def dump(
    arrays: Mapping[str, ArrayLike],
    path: File,
    *,
    meta: Meta | None = None,
    prev: bytes | None = None,
    audit: str | None = None,
    rows_per_chunk: int | None = None,
    pending: bool = False,
    hmac_key: bytes | None = None,
    sign: Signer | None = None,
    threads: int | None = None,
) -> None:
    """Write arrays to a WTXT file, which appears only when it is complete.

    `arrays` are any numpy arrays but objects and records, by any names. `prev`
    is the merkle_this (32 bytes) of the generation before, `audit` the text of
    the audit line, `hmac_key` a key that authenticates every array, `sign` a
    function that signs bytes (`wtxtgit.model.Signature`). What `load` returned
    is written as it was read, as far as no argument says otherwise. Raises
    TextError for what no text can hold.
    """
    snapshot = _snapshot(arrays, meta, prev, audit, rows_per_chunk, pending)
    writer = TextWriter(snapshot, threads=threads, hmac_key=hmac_key, sign=sign)
    write_output(Path(path), writer.write_file)


def dumps(
    arrays: Mapping[str, ArrayLike],
    *,
    meta: Meta | None = None,
    prev: bytes | None = None,
    audit: str | None = None,
    rows_per_chunk: int | None = None,
    pending: bool = False,
    hmac_key: bytes | None = None,
    sign: Signer | None = None,
    threads: int | None = None,
) -> bytes:
    """The text of arrays, as `dump` writes it."""
    snapshot = _snapshot(arrays, meta, prev, audit, rows_per_chunk, pending)
    return write.dumps(snapshot, threads=threads, hmac_key=hmac_key, sign=sign)


def load(
    path: File,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    threads: int | None = None,
) -> Weights:
    """Verify a WTXT file and give its arrays by name, read-only.

    `wsum` is the content of its WSUM; without it that of `PATH.root.wsum`, if there is one.
    The payload of a detached text is that of the repository it is in. Raises TextError with
    the first thing that does not hold, and InputError for a pointer of git-lfs.
    """
    text = _read(path)
    wsum = wsum_at(wsum_path(Path(path))) if wsum is None else wsum
    return read(
        text,
        wsum=wsum,
        hmac_key=hmac_key,
        public_keys=public_keys,
        threads=threads,
        payload=payload_for(str(path), text),
    )


def loads(
    text: Buffer,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    threads: int | None = None,
) -> Weights:
    """Verify a text and give its arrays, as `load` does."""
    view = memoryview(text).cast("B")
    return read(view, wsum=wsum, hmac_key=hmac_key, public_keys=public_keys, threads=threads)


@contextmanager
def open(path: File) -> Iterator[LazySnapshot]:  # noqa: A001 - the name that json, gzip... have
    """Open a WTXT file whose arrays are decoded only where they are indexed.

    `snapshot["W"][128:256]` decodes and checks the chunks of those rows alone.

    Of a file whose lines are damaged what is intact is given, with a `DamageWarning`;
    `snapshot.problems` say what can't be read, and raise TextError when they are indexed.
    Raises TextError where no array is left.
    """
    text = _read(path)
    snapshot = LazySnapshot(text, damaged=True, payload=payload_for(str(path), text))
    if snapshot.is_damaged:
        first, *others = snapshot.problems
        more = f", and {counted(len(others), 'other problem')}" if others else ""
        warn(
            f"{shown(Path(path))} is damaged: {first}{more}; what is intact can be read, and "
            "wtxtgit recover may mend the rest",
            DamageWarning,
            # `open`, and contextlib's `__enter__` between it and the caller.
            stacklevel=3,
        )
    yield snapshot


def finalize(
    path: File,
    *,
    sign: Signer | None = None,
    prev: bytes | None = None,
    inline: bool = False,
    threads: int | None = None,
) -> Finalized:
    """Check a pending text, and write its WSUM, `PATH.root.wsum`; gives its root.

    `sign` is a function that signs bytes, as for `dump`. `prev` is the
    merkle_this (32 bytes) of the generation before; without it the text keeps
    the place that its WSUM gives it, else it is the first generation. If
    `inline` the text gets its root and signature in lines of its own instead; a
    WSUM that says no more than these is taken away. A WSUM that says what is
    asked for already stays.

    Raises CheckError for a text that does not verify, InputError for what is no
    pending text, UsageError where something else stands in the WSUM's place.
    Spec: `docs/spec/wtxt.md`, "Pending and WSUM".
    """
    return finalize_file(Path(path), sign=sign, prev=prev, inline=inline, threads=threads)


def verify(
    path: File,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    allow_unauthenticated: bool = False,
    threads: int | None = None,
) -> TextReport:
    """Check everything that can be checked of a WTXT file, and say what was found.

    `wsum` is as for `load`. A detached text whose payload is not all at hand has a problem
    of the kind "payload-missing".
    """
    text = _read(path)
    return text_verify.verify(
        text,
        payload=payload_for(str(path), text),
        wsum=wsum_at(wsum_path(Path(path))) if wsum is None else wsum,
        hmac_key=hmac_key,
        public_keys=public_keys,
        allow_unauthenticated=allow_unauthenticated,
        threads=threads,
    )


def salvage(
    path: File, out: File | None = None, *, hmac_key: bytes | None = None
) -> ContainerRecovery:
    """Find out which tensors of a damaged checkpoint are whole, and write those to `out`.

    `out`'s ending decides its format; where no tensor is whole it is not written, and the
    report's `output` is None. Each of the report's `tensors` has a `state`: `proved` by a hash in
    the file, `unproved` where there is none and all its bytes are there, `lost`, or `absent`.
    Raises InputError for a file of no format, and as `wtxtgit convert` fails: UsageError for
    endings, InputError for tensors that the format can't hold.
    """
    from wtxtgit.checkpoint import salvage as salvaging

    given = str(path)
    options = ReadOptions(integrity_key=hmac_key)
    data = _read(path)
    if not salvaging.is_container(data):
        raise InputError(f"{shown(given)}: no checkpoint that we know")
    done = salvaging.salvage(given, data, options)
    return done.report if out is None else salvaging.write(done, Path(out), options)


def _read(path: File) -> ByteView:
    data = view_file(Path(path))
    refuse_pointer(shown(str(path)), data)
    return data


def _snapshot(
    arrays: Mapping[str, ArrayLike],
    meta: Meta | None,
    prev: bytes | None,
    audit: str | None,
    rows_per_chunk: int | None,
    pending: bool,
) -> Snapshot:
    if isinstance(arrays, Weights):
        given = (meta, prev, audit, rows_per_chunk)
        if all(value is None for value in given) and not pending:
            return arrays.snapshot
        # A layout binds the arrays to a file: with other metadata it is made anew.
        if arrays.snapshot.layout is None and rows_per_chunk is None:
            old = arrays.snapshot
            return replace(
                old,
                meta=meta or old.meta,
                prev=old.prev if prev is None else prev,
                audit=old.audit if audit is None else audit,
                pending=pending or old.pending,
                signature=None,
            )
    return snapshot_from(
        arrays,
        meta=meta,
        prev=prev or bytes(32),
        audit=audit,
        rows_per_chunk=rows_per_chunk,
        pending=pending,
    )
