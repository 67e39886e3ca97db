"""The Python interface: checkpoints of every format, and texts, as numpy arrays.

wtxtgit.dump({"W": w}, "step-100.wtxt", meta=wtxtgit.Meta(gen=100))
weights = wtxtgit.load("step-100.wtxt")
with wtxtgit.open("model.safetensors") as model:
    rows = model["W"][128:256]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from wtxtgit.api.checkpoints import LazyTensors, Tensors
from wtxtgit.checkpoint.contents import NATIVE_ELEMENTS, Side, open_checkpoint, opened_lazily
from wtxtgit.checkpoint.finalize import Finalized
from wtxtgit.checkpoint.finalize import finalize as finalize_file
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import payload_for, read_checkpoint, shown_name, wsum_beside
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.format import Format
from wtxtgit.errors import CheckError, DamageWarning, InputError, UsageError, counted
from wtxtgit.io.files import shown, write_output
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, Pages
from wtxtgit.model.array import NO_PAYLOAD, Meta, PayloadSource, Snapshot
from wtxtgit.model.findings import total
from wtxtgit.model.tensor import ReadOptions, TensorSource
from wtxtgit.remotes.urls import GIT
from wtxtgit.tensors.given import given_arrays, snapshot_from
from wtxtgit.text import verify as text_verify
from wtxtgit.text import write
from wtxtgit.text.arrays import LazySnapshot, NumpyArray, Weights, verified, weights_of
from wtxtgit.text.file import file_pieces
from wtxtgit.text.grammar import is_text
from wtxtgit.text.index import index
from wtxtgit.text.verify import TextReport
from wtxtgit.text.write import Signer, TextWriter
from wtxtgit.trust.age.armor import is_age

if TYPE_CHECKING:  # what converts and compares checkpoints is not needed to read them
    from wtxtgit.checkpoint.convert import Conversion
    from wtxtgit.checkpoint.salvage import ContainerRecovery
    from wtxtgit.report.diff import DiffReport
    from wtxtgit.report.verdict import FileVerdict

File = str | PathLike[str]


def dump(
    arrays: Mapping[Any, Any],
    path: File,
    *,
    tags: Mapping[str, str] | None = None,
    max_shard: int | None = None,
    ecc: int | None = None,
    tensor_hashes: bool = False,
    page_size: int | None = None,
    meta: Meta | None = None,
    prev: bytes | None = None,
    audit: str | None = None,
    rows_per_chunk: int | None = None,
    pending: bool = False,
    hmac_key: bytes | None = None,
    sign: Signer | None = None,
    threads: int | None = None,
) -> None:
    """Write arrays to a file, which appears only when it is complete.

    `path`'s ending decides its format: `.safetensors`, `.npz` and others as `wtxtgit convert`
    knows them, WTXT for any other. `arrays` are numpy arrays, torch tensors, and what else gives an
    array, by any names; mappings in it give names that are joined with a dot.

    `tags` are short texts by name, for formats that have a place for them; those of what `load` or
    `open` returned go along where there are no others, as far as the format can hold them. With
    `max_shard` bytes the arrays go to several files beside one another (safetensors, GGUF, AERO,
    MLCP), `ecc` bytes of parity go behind each block of FOLD, `tensor_hashes`, and hashes of pages
    of `page_size` bytes, into AERO: as in `convert`. All other arguments are
    for texts: `prev` is the merkle_this (32 bytes) of the generation before, `audit` the text of
    the audit line, `hmac_key` a key that authenticates every array, `sign` a
    function that signs bytes (`wtxtgit.model.Signature`). What `load` returned of a native text
    is written as it was read, as far as no argument says otherwise.

    Raises TextError and UsageError for what no text can hold, InputError for what the format can't.
    """
    target = registry.by_ending(Path(path).suffix)
    if target is not None and target.write is not None:
        if pending or any(
            x is not None for x in (meta, prev, audit, rows_per_chunk, hmac_key, sign)
        ):
            raise UsageError(
                f"{shown(Path(path))}: arguments for texts, which a {target.name} file is not"
            )
        extras = {"ecc": ecc, "tensor_hashes": tensor_hashes, "page_size": page_size}
        if tags is None and isinstance(arrays, Tensors | LazyTensors):
            tags = {key: arrays.tags[key] for key in arrays.tags if _keeps(target, key)}
        _dump_container(given_arrays(arrays), Path(path), tags or {}, extras, max_shard)
        return
    if tags or any((ecc, max_shard, page_size)) or tensor_hashes:
        raise UsageError(f"{shown(Path(path))}: a text has no tags, parity and further hashes")
    snapshot = _snapshot(arrays, meta, prev, audit, rows_per_chunk, pending)
    writer = TextWriter(snapshot, threads=threads, hmac_key=hmac_key, sign=sign)
    write_output(Path(path), writer.write_file)


def dumps(
    arrays: Mapping[Any, Any],
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
    """The text of arrays, as `dump` writes it to a file."""
    snapshot = _snapshot(arrays, meta, prev, audit, rows_per_chunk, pending)
    return write.dumps(snapshot, threads=threads, hmac_key=hmac_key, sign=sign)


def load(
    path: File,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    decryption_key: bytes | None = None,
    threads: int | None = None,
) -> Weights | Tensors:
    """Verify a checkpoint of any format, and give its tensors by name as read-only numpy arrays.

    `path` is a file, the folder of a set, a URL, or in the repository of the current folder
    REV:PATH, or a generation by its name: PATH@gen:12, PATH@latest, PATH@signed-by:alice.

    Values are little-endian, and in C order by shapes as numpy has them. bfloat16 and
    float8 are unsigned integers unless ml_dtypes is imported; what numpy has no dtype for, such
    as quantised blocks, comes as its bytes (dtype `V1`).

    Of a text `wsum` is the content of its WSUM; without it that of `PATH.root.wsum`, if there is
    one. The payload of a detached text is that of the repository it is in. `hmac_key` is for
    texts and FOLD, `public_keys` (32 bytes each) for texts, `decryption_key` (32 bytes) for FOLD.

    Raises TextError with the first thing that does not hold of a text, CheckError of another
    checkpoint, InputError for what is none (a pointer of git-lfs, too), and EnvironmentFailure.
    """
    name = _resolved(str(path))
    data = read_checkpoint(name, threads=threads)
    if is_text(data) and wsum is None:
        wsum = wsum_beside(name)
    options = ReadOptions(decryption_key=decryption_key, integrity_key=hmac_key)
    payload = payload_for(name, data)
    opener = members(name, threads=threads)
    return _loaded(name, data, opener, payload, wsum, hmac_key, public_keys, options, threads)


def loads(
    content: Buffer,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    decryption_key: bytes | None = None,
    threads: int | None = None,
) -> Weights | Tensors:
    """Verify what one file holds, and give its tensors, as `load` does."""
    data = memoryview(content).cast("B")
    options = ReadOptions(decryption_key=decryption_key, integrity_key=hmac_key)
    name, payload = "the bytes given", NO_PAYLOAD
    return _loaded(name, data, _no_member, payload, wsum, hmac_key, public_keys, options, threads)


@contextmanager
def open(  # noqa: A001 - the name that json, gzip... have
    path: File, *, decryption_key: bytes | None = None, threads: int | None = None
) -> Iterator[LazySnapshot | LazyTensors]:
    """Open a checkpoint of any format, of which only what is indexed is read.

    `model["W"][128:256]` reads those rows alone; of a text it decodes and checks their chunks, and
    of a detached one fetches them. What is compressed, or in another order than C, is read whole.
    `path` and values are as for `load`, but nothing else than what is read is verified.

    Of a text whose lines are damaged what is intact is given, by the names of its arrays, with a
    `DamageWarning`; `problems` say what can't be read, and raise TextError when they are indexed.
    Raises TextError where no array is left, and InputError and EnvironmentFailure as `load` does.
    """
    name = _resolved(str(path))
    data = read_checkpoint(name, threads=threads)
    indexed = None
    if is_text(data):
        indexed = index(data, payload=payload_for(name, data))
        snapshot = LazySnapshot(data, damaged=True, indexed=indexed)
        if snapshot.is_damaged:
            _warn_of_damage(name, snapshot)
        if snapshot.is_damaged or not snapshot.is_container:
            yield snapshot
            return
    _refuse_encrypted(name, data)
    options = ReadOptions(decryption_key=decryption_key)
    with opened_lazily(name, data, options, threads=threads, indexed=indexed) as checkpoint:
        yield LazyTensors(checkpoint)


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
    decryption_key: bytes | None = None,
    threads: int | None = None,
) -> TextReport | FileVerdict:
    """Check all that can be checked of a checkpoint, a ledger or a delta, and say what was found.

    Arguments are as for `load`; a TextReport comes of a text, a FileVerdict of all else. Both have
    `ok`. A detached text whose payload is not all at hand has a problem of the kind
    "payload-missing". Raises InputError and EnvironmentFailure for what can't be read.
    """
    name = _resolved(str(path))
    data = read_checkpoint(name, threads=threads)
    if is_text(data):
        return text_verify.verify(
            data,
            payload=payload_for(name, data),
            wsum=wsum_beside(name) if wsum is None else wsum,
            hmac_key=hmac_key,
            public_keys=public_keys,
            allow_unauthenticated=allow_unauthenticated,
            threads=threads,
        )
    from wtxtgit.checkpoint.verify import Demands, verify_data

    reading = ReadOptions(decryption_key=decryption_key)
    keys = tuple(public_keys)
    asked = Demands(wsum, hmac_key, keys, False, allow_unauthenticated, reading, release_keys=keys)
    return verify_data(name, data, asked, threads=threads)


def diff(
    before: File, after: File, *, decryption_key: bytes | None = None, threads: int | None = None
) -> DiffReport:
    """Compare two checkpoints of any formats, tensor by tensor.

    `before` and `after` are as `path` is for `load`. Raises InputError, CheckError and
    EnvironmentFailure. What the numbers mean: `docs/diff.md`, "Numbers".
    """
    from wtxtgit.comparison.diff import diff as compared

    options = ReadOptions(decryption_key=decryption_key)
    return compared(_resolved(str(before)), _resolved(str(after)), options, threads=threads)


def convert(
    source: File,
    out: File,
    *,
    max_shard: int | None = None,
    inline_data: bool = False,
    skip: bool = False,
    ecc: int | None = None,
    tensor_hashes: bool = False,
    page_size: int | None = None,
    decryption_key: bytes | None = None,
    threads: int | None = None,
) -> Conversion:
    """Write the tensors of a checkpoint to a file of another format, which `out`'s ending says.

    `source` is as `path` is for `load`. With `max_shard` bytes the tensors go to several files
    beside one another; `inline_data` puts the bytes of tensors into MLCP; with `skip` tensors that
    the format can't hold are left out, and are the report's `skipped`. `ecc` bytes of parity go
    behind each block of a FOLD file (16, 32 and 64 are usual); `tensor_hashes`, and hashes of pages
    of `page_size` bytes, into AERO. The report's `dropped` says what else of the source is not in
    what was written. Raises UsageError for endings and for what their format does not write,
    InputError for what it can't hold, CheckError where the source does not hold.
    """
    from wtxtgit.checkpoint.convert import convert as converted

    options = ReadOptions(decryption_key=decryption_key)
    return converted(
        _resolved(str(source)),
        Path(out),
        options,
        max_shard=max_shard,
        inline_data=inline_data,
        skip=skip,
        extras={"ecc": ecc, "tensor_hashes": tensor_hashes, "page_size": page_size},
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

    given = _resolved(str(path))
    options = ReadOptions(integrity_key=hmac_key)
    data = read_checkpoint(given)
    if not salvaging.is_container(data):
        raise InputError(f"{shown(given)}: not a known checkpoint")
    done = salvaging.salvage(given, data, options)
    return done.report if out is None else salvaging.write(done, Path(out), options)


def _loaded(
    name: str,
    data: ByteView,
    opener: Callable[[str], ByteView],
    payload: PayloadSource,
    wsum: bytes | None,
    hmac_key: bytes | None,
    public_keys: Sequence[bytes],
    options: ReadOptions,
    threads: int | None,
) -> Weights | Tensors:
    """The tensors of what was read of `name`, verified; `opener` opens files that it lists."""
    report = None
    if is_text(data):
        report = verified(
            data,
            wsum=wsum,
            hmac_key=hmac_key,
            public_keys=public_keys,
            threads=threads,
            payload=payload,
        )
        if report.layout is None or not report.layout.is_container:
            return weights_of(data, report, threads=threads)
        data = spooled(file_pieces(data, report.index, report.layout, threads=threads))
    else:
        _refuse_encrypted(name, data)
        if any_format.identify(data) is not None:
            for problem in any_format.check(data, options, opener).errors:
                raise CheckError(f"{shown_name(name)}: {problem}")
    side = Side(shown_name(name), data, opener, None)
    return Tensors(open_checkpoint(side, {}, options, Pages()), report)


def _resolved(target: str) -> str:
    """What the name of a generation, or of a file elsewhere, means; any other target as it is."""
    if "@" not in target and not target.startswith(GIT):
        return target
    # What finds generations reads ledgers and walks commits.
    from wtxtgit.chain import generation_names

    return generation_names.resolved(target)


def _no_member(path: str) -> ByteView:
    raise InputError(f"{shown(path)}: bytes have no files beside them")


def _refuse_encrypted(name: str, data: ByteView) -> None:
    if is_age(data):
        raise InputError(f"{shown_name(name)}: is encrypted", hint="wtxtgit.decrypt opens it")


def _warn_of_damage(name: str, snapshot: LazySnapshot) -> None:
    first, others = snapshot.problems[0], total(snapshot.problems) - 1
    more = f", and {counted(others, 'other problem')}" if others else ""
    warn(
        f"{shown_name(name)} is damaged: {first}{more}; what is intact can be read, and "
        "wtxtgit recover may mend the rest",
        DamageWarning,
        # This, `open`, and contextlib's `__enter__` between it and the caller.
        stacklevel=4,
    )


def _keeps(target: Format, key: str) -> bool:
    return target.keeps_tag is not None and target.keeps_tag(key)


def _dump_container(
    arrays: Mapping[str, NumpyArray],
    path: Path,
    tags: Mapping[str, str],
    extras: Mapping[str, object],
    max_shard: int | None,
) -> None:
    """Write arrays as a file of the format that its ending says, or several (`max_shard`)."""
    from wtxtgit.checkpoint import convert

    target, writer = convert.target_of(path)
    sources = [_source(path, array) for _, array in sorted(arrays.items())]
    convert.refuse_dtypes(path, sources, writer)
    _, without = convert.kept_tags(target, tags)
    if without:
        raise UsageError(f"{shown(path)}: a {target.name} file can't hold {without[0]}")
    digests = convert.digests(sources)
    inline_data = target.lists_only
    asked = convert.asked_of(target, extras)
    if max_shard is not None:
        build = convert.set_writer_of(target)
        convert.write_set(path, build, sources, tags, max_shard, digests, ReadOptions(), asked)
        return
    convert.write_file(
        path, sources, tags, digests, ReadOptions(), inline_data=inline_data, asked=asked
    )


def _source(path: Path, array: NumpyArray) -> TensorSource:
    element = NATIVE_ELEMENTS.get(array.dtype.descr)
    if element is None:
        raise InputError(
            f'{shown(path)}: "{array.name}" has dtype {array.dtype.descr}, which no checkpoint has'
        )
    blocks = partial(iter, (array.data,))
    return TensorSource(array.name, element, array.shape, array.data.nbytes, blocks)


def _snapshot(
    arrays: Mapping[Any, Any],
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
