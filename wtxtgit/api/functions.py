"""The Python interface: checkpoints of every format, and texts, as numpy arrays.

wtxtgit.dump({"W": w}, "step-100.wtxt", meta=wtxtgit.Meta(gen=100))
weights = wtxtgit.load("step-100.wtxt")
with wtxtgit.open("model.safetensors") as model:
    rows = model["W"][128:256]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from wtxtgit.api.checkpoints import RAW, LazyTensors, Tensors
from wtxtgit.checkpoint.contents import Side, open_checkpoint, opened_lazily
from wtxtgit.checkpoint.finalize import Finalized
from wtxtgit.checkpoint.finalize import finalize as finalize_file
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import payload_for, read_checkpoint, shown_name, wsum_beside
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.format import Format
from wtxtgit.errors import (
    MAX_NAME,
    DamageWarning,
    InputError,
    TextError,
    UsageError,
    counted,
)
from wtxtgit.io.files import shown, write_output
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, Pages
from wtxtgit.io.workers import check_threads
from wtxtgit.model.array import NO_PAYLOAD, Meta, PayloadSource, Snapshot
from wtxtgit.model.dtypes import ELEMENTS
from wtxtgit.model.findings import total
from wtxtgit.model.named_arrays import with_hints
from wtxtgit.model.tensor import ReadOptions, TensorSource
from wtxtgit.remotes.urls import GIT, is_url, shown_url
from wtxtgit.tensors.program_arrays import given_arrays, snapshot_from
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
_KEY = 32
"""Bytes of an ed25519 key, and of one that FOLD is encrypted with."""
_MOST_PARITY = 254


@with_hints
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
    """Write arrays to a file, which appears only once it is complete.

    The ending of `path` decides the format: `.safetensors`, `.npz` and the others that `wtxtgit
    convert` can write; any other ending means a WTXT text. `arrays` maps names to numpy arrays,
    torch tensors or anything else that converts to an array, of any shape. Nested mappings are
    allowed: their names are joined with dots.

    For containers:
    - `tags`: short texts by name, in formats that have a place for them. Those of what `load` or
      `open` returned are kept where none are given, as far as the format can hold them.
    - `max_shard`: bytes per file; the arrays go to several files named after `path`, as by
      `convert`, whose report lists them (safetensors, GGUF, AERO, MLCP).
    - `ecc`: bytes of parity per block of a FOLD file.
    - `tensor_hashes`, `page_size`: AERO gets a hash of each tensor, and of each page of so many
      bytes.

    For texts:
    - `meta`: generation, time and so on; `prev`: merkle_this (32 bytes) of the previous
      generation.
    - `audit`: the text of the audit line.
    - `rows_per_chunk`: rows of an array that share a chunk.
    - `pending`: leave the root to `finalize`.
    - `hmac_key`: a key that authenticates every array.
    - `sign`: a function from bytes to a signature (`wtxtgit.model.Signature`).

    Native texts that `load` returned are written exactly as they were read, except for what an
    argument changes. `threads` defaults to the number of cores.

    Raises UsageError for arguments or arrays that do not fit, TextError for what a text can't
    hold, and InputError for what the chosen format can't hold.
    """
    check_threads(threads)
    _refuse_url(path)
    _check_sizes(max_shard, ecc, page_size)
    target = registry.by_ending(Path(path).suffix)
    if target is not None and target.write is None:
        raise UsageError(f"{shown(Path(path))}: {target.name} files hold no arrays")
    if target is not None:
        if pending or any(
            x is not None for x in (meta, prev, audit, rows_per_chunk, hmac_key, sign)
        ):
            raise UsageError(
                f"{shown(Path(path))}: {target.name} files do not have all of these arguments"
            )
        extras = {"ecc": ecc, "tensor_hashes": tensor_hashes, "page_size": page_size}
        if tags is None and isinstance(arrays, Tensors | LazyTensors):
            tags = {key: arrays.tags[key] for key in arrays.tags if _keeps(target, key)}
        _check_tags({} if tags is None else tags)
        _dump_container(given_arrays(arrays), Path(path), tags or {}, extras, max_shard)
        return
    if tags or any((ecc, max_shard, page_size)) or tensor_hashes:
        raise UsageError(f"{shown(Path(path))}: a text has no tags, parity or extra hashes")
    snapshot = _snapshot(arrays, meta, prev, audit, rows_per_chunk, pending)
    writer = TextWriter(snapshot, threads=threads, hmac_key=hmac_key, sign=sign)
    write_output(Path(path), writer.write_file)


@with_hints
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
    """Return arrays as the bytes of a text; the arguments are those of `dump`."""
    check_threads(threads)
    snapshot = _snapshot(arrays, meta, prev, audit, rows_per_chunk, pending)
    return write.dumps(snapshot, threads=threads, hmac_key=hmac_key, sign=sign)


@with_hints
def load(
    path: File,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    decryption_key: bytes | None = None,
    threads: int | None = None,
) -> Weights | Tensors:
    """Verify a checkpoint of any format and return its tensors by name, as read-only numpy arrays.

    `path` is a file, the folder of a set, a URL, or, in the repository around the current folder,
    REV:PATH or a generation by name: PATH@gen:12, PATH@latest, PATH@signed-by:alice.

    Values are little-endian and in C order, with the shapes that numpy would show. bfloat16 and
    float8 come as unsigned integers unless ml_dtypes is imported; `dump` writes these, and copies
    and views of them, as what they are. Data for which numpy has no dtype, such as quantised
    blocks, comes as bytes (dtype `V1`).

    - `wsum`: the content of a text's WSUM; by default that of `PATH.root.wsum`, if it exists.
    - `hmac_key`: checks the HMACs of texts and FOLD files.
    - `public_keys`: ed25519 keys (32 bytes each) that may have signed a text.
    - `decryption_key`: 32 bytes, for encrypted FOLD chunks.
    - `threads`: defaults to the number of cores.

    The payload of a detached text is taken from the repository that it is in.

    Raises TextError for the first problem in a text, CheckError for one in another checkpoint,
    InputError for what is not a checkpoint (git-lfs pointers included), and EnvironmentFailure
    where git, the network or the disk fails.
    """
    check_threads(threads)
    _check_keys(hmac_key, public_keys)
    name = resolved_path(path)
    data = read_checkpoint(name, threads=threads)
    if is_text(data) and wsum is None:
        wsum = wsum_beside(name)
    options = ReadOptions(decryption_key=_key(decryption_key), integrity_key=hmac_key)
    payload = payload_for(name, data)
    opener = members(name, threads=threads)
    return _loaded(name, data, opener, payload, wsum, hmac_key, public_keys, options, threads)


@with_hints
def loads(
    content: Buffer,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    decryption_key: bytes | None = None,
    threads: int | None = None,
) -> Weights | Tensors:
    """Verify the content of one file and return its tensors; otherwise like `load`."""
    check_threads(threads)
    _check_keys(hmac_key, public_keys)
    try:
        data = memoryview(content).cast("B")
    except TypeError:
        raise UsageError(f"bytes are expected, {_not(content)}") from None
    options = ReadOptions(decryption_key=_key(decryption_key), integrity_key=hmac_key)
    name, payload = "the bytes given", NO_PAYLOAD
    return _loaded(name, data, _no_member, payload, wsum, hmac_key, public_keys, options, threads)


@with_hints
def open(  # noqa: A001 - the name that json, gzip... have
    path: File, *, decryption_key: bytes | None = None, threads: int | None = None
) -> LazySnapshot | LazyTensors:
    """Open a checkpoint of any format, and read from it only what is indexed.

    Use it in `with`, or call `close`.

    `model["W"]` has a `dtype` and a `shape`; `model["W"][128:256]` reads only those rows. In a
    text it decodes and checks only their chunks, and in a detached text it fetches only those.
    Tensors that are compressed or not in C order are read whole. `path`, keys and values are as in
    `load`, but only what is read is verified.

    If lines of a text are damaged, its intact arrays are available by name and a `DamageWarning`
    is issued; `problems` lists the others, which raise TextError when they are indexed.

    Raises TextError if no array is left, and InputError and EnvironmentFailure as `load` does.
    """
    check_threads(threads)
    name = resolved_path(path)
    data = read_checkpoint(name, threads=threads)
    indexed = None
    if is_text(data):
        indexed = index(data, payload=payload_for(name, data))
        with _naming(name):
            snapshot = LazySnapshot(data, damaged=True, indexed=indexed)
        if snapshot.is_damaged:
            _warn_of_damage(name, snapshot)
        if snapshot.is_damaged or not snapshot.is_container:
            return snapshot
    _refuse_encrypted(name, data)
    options = ReadOptions(decryption_key=_key(decryption_key))
    with ExitStack() as until:
        opened = opened_lazily(name, data, options, threads=threads, indexed=indexed)
        tensors = LazyTensors(until.enter_context(opened))
        tensors.keep(until.pop_all())
    return tensors


@with_hints
def cat(
    path: File, name: str, *, decryption_key: bytes | None = None, threads: int | None = None
) -> bytes:
    """Return one tensor, chunk, member or value of a checkpoint as bytes.

    `path` is as in `load`. `name` is one that `wtxtgit inspect` lists: a tensor's items are given
    in C order, little-endian; a chunk or member decompressed and decrypted; a value of the metadata
    as text, or as JSON if it is not a string. Of an index of tars (TARIDX), `name` is a member,
    STEM.EXT, which is read from the tars beside it.

    Only what has the name is read, and only a text has it verified. Raises UsageError if nothing,
    or more than one thing, has the name, and otherwise as `open` does.
    """
    from wtxtgit.checkpoint import cat as catting
    from wtxtgit.checkpoint import taridx

    check_threads(threads)
    target = resolved_path(path)
    known = registry.detected(read_checkpoint(target, threads=threads))
    if known is not None and known.tar_index is not None:
        hit = taridx.find(target, name, taridx.folder_of(target))
        for said in hit.warnings:
            warn(said, stacklevel=3)
        return bytes(hit.data)
    options = ReadOptions(decryption_key=_key(decryption_key))
    with catting.opened(target, [name], options, threads=threads) as (found,):
        if not found.is_value:
            return b"".join(found.blocks())
        if isinstance(found.value, str):
            return found.value.encode("utf-8", "surrogatepass")
        return json.dumps(found.value).encode()


@with_hints
def finalize(
    path: File,
    *,
    sign: Signer | None = None,
    prev: bytes | None = None,
    inline: bool = False,
    threads: int | None = None,
) -> Finalized:
    """Check a pending text, write its WSUM to `PATH.root.wsum`, and return its root.

    `sign` is a function from bytes to a signature, as in `dump`. `prev` is merkle_this (32 bytes)
    of the previous generation; without it, the text keeps the place that its WSUM gives it, or
    becomes the first generation. With `inline`, root and signature are written into the text
    itself, and a WSUM that says no more than they do is deleted. A WSUM that is already as
    requested is left alone.

    Raises CheckError for a text that does not verify, InputError for what is not a pending text,
    and UsageError if a file that is not a WSUM has the WSUM's name. Spec: `docs/spec/wtxt.md`,
    "Pending and WSUM".
    """
    check_threads(threads)
    return finalize_file(Path(path), sign=sign, prev=prev, inline=inline, threads=threads)


@with_hints
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
    """Check everything that can be checked in a checkpoint, ledger or delta, and return a report.

    The arguments are those of `load`; with `allow_unauthenticated`, a file without HMACs passes
    even though `hmac_key` is given. The report is a TextReport for a text and a FileVerdict for
    anything else; both have `ok`. A detached text with missing payload has a problem of kind
    "payload-missing". Raises InputError and EnvironmentFailure for what can't be read.
    """
    check_threads(threads)
    _check_keys(hmac_key, public_keys)
    reading = ReadOptions(decryption_key=_key(decryption_key))
    name = resolved_path(path)
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

    keys = tuple(public_keys)
    asked = Demands(wsum, hmac_key, keys, False, allow_unauthenticated, reading, release_keys=keys)
    return verify_data(name, data, asked, threads=threads)


@with_hints
def diff(
    before: File, after: File, *, decryption_key: bytes | None = None, threads: int | None = None
) -> DiffReport:
    """Compare two checkpoints of any format, tensor by tensor.

    `before` and `after` are like `path` in `load`. Raises InputError, CheckError and
    EnvironmentFailure. `docs/diff.md`, "Numbers", explains the figures.
    """
    from wtxtgit.comparison.diff import diff as compared

    check_threads(threads)
    options = ReadOptions(decryption_key=_key(decryption_key))
    return compared(resolved_path(before), resolved_path(after), options, threads=threads)


@with_hints
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
    """Convert a checkpoint to the format that the ending of `out` names.

    `source` is like `path` in `load`.

    - `max_shard`: bytes per file; the tensors go to several files.
    - `inline_data`: an MLCP file includes the bytes of its tensors.
    - `skip`: leave out tensors that the format can't hold; the report lists them as `skipped`.
    - `ecc`: bytes of parity per block of a FOLD file; 16, 32 and 64 are usual.
    - `tensor_hashes`, `page_size`: AERO gets a hash of each tensor, and of each page of so many
      bytes.
    - `decryption_key`: 32 bytes, for encrypted FOLD chunks.

    The report's `dropped` lists everything else that the new file does not have. Raises UsageError
    for an unknown ending or an option that the format does not have, InputError for what it can't
    hold, and CheckError for a damaged source.
    """
    from wtxtgit.checkpoint.convert import convert as converted

    check_threads(threads)
    _refuse_url(out)
    _check_sizes(max_shard, ecc, page_size)
    options = ReadOptions(decryption_key=_key(decryption_key))
    return converted(
        resolved_path(source),
        Path(out),
        options,
        max_shard=max_shard,
        inline_data=inline_data,
        skip=skip,
        extras={"ecc": ecc, "tensor_hashes": tensor_hashes, "page_size": page_size},
        threads=threads,
    )


@with_hints
def salvage(
    path: File, out: File | None = None, *, hmac_key: bytes | None = None
) -> ContainerRecovery:
    """Find out which tensors of a damaged checkpoint are intact, and write those to `out`.

    The ending of `out` decides its format. If no tensor is intact, nothing is written and the
    report's `output` is None. Each of the report's `tensors` has a `state`: `proved` by a hash in
    the file, `unproved` if all its bytes are there but no hash covers them, `lost`, or `absent`.

    Raises InputError for a file of unknown format or a tensor that the new format can't hold, and
    UsageError for an unknown ending.
    """
    from wtxtgit.checkpoint import salvage as salvaging

    _check_keys(hmac_key, ())
    given = resolved_path(path)
    options = ReadOptions(integrity_key=hmac_key)
    data = read_checkpoint(given)
    if is_text(data):
        raise InputError(f"{shown_name(given)}: a text", hint="wtxtgit recover mends texts")
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
    """Verify the checkpoint `data` and return its tensors.

    `opener` opens the files that it lists.
    """
    report = None
    if is_text(data):
        with _naming(name):
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
                raise problem.error(f"{shown_name(name)}: {problem}")
    side = Side(shown_name(name), data, opener, None)
    return Tensors(open_checkpoint(side, {}, options, Pages()), report)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Have a TextError say which file is meant."""
    try:
        yield
    except TextError as error:
        error.file = shown_name(name)
        raise


def resolved_path(path: File) -> str:
    """Return a path as a string, with the name of a generation, or of a file elsewhere, resolved.

    Raises UsageError for anything else, such as the content of a file.
    """
    if not isinstance(path, str | PathLike):
        takes = "wtxtgit.loads takes the content of a file"
        is_content = isinstance(path, bytes | bytearray | memoryview)
        raise UsageError(f"a path is expected, {_not(path)}", hint=takes if is_content else None)
    target = str(path)
    if not target:
        raise UsageError("a path is expected, not an empty name")
    if "@" not in target and not target.startswith(GIT):
        return target
    # Imported here: what finds generations reads ledgers and walks commits.
    from wtxtgit.chain import generation_names

    return generation_names.resolved(target)


def _not(value: object) -> str:
    name = type(value).__name__
    return f"not {'an' if name[0] in 'aeiou' else 'a'} {name}"


def _refuse_url(path: File) -> None:
    if isinstance(path, str) and is_url(path):
        raise UsageError(f"{shown_url(path)}: a URL, and only files are written")


def _check_sizes(max_shard: object, ecc: object, page_size: object) -> None:
    """Raise UsageError for what is no number of bytes; None is none."""
    for name, value in (("max_shard", max_shard), ("page_size", page_size)):
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name} must be a positive number of bytes, not {value!r}")
    if ecc is not None and (type(ecc) is not int or not 1 <= ecc <= _MOST_PARITY):
        raise UsageError(f"ecc must be a number of bytes from 1 to {_MOST_PARITY}, not {ecc!r}")


def _check_tags(tags: object) -> None:
    if not isinstance(tags, Mapping):
        raise UsageError(f"tags must be a mapping of strings, {_not(tags)}")
    for name, value in tags.items():
        if not isinstance(name, str):
            raise UsageError(f"tag {name!r} has a name that is not a string")
        if not isinstance(value, str):
            raise UsageError(f"tag {name!a} is {ascii(value)[:MAX_NAME]}, not a string")


def _check_keys(hmac_key: object, public_keys: Sequence[object]) -> None:
    if hmac_key is not None and not isinstance(hmac_key, bytes):
        raise UsageError(f"hmac_key must be bytes, {_not(hmac_key)}")
    is_list = isinstance(public_keys, Sequence) and not isinstance(public_keys, bytes | str)
    if not is_list or any(not isinstance(one, bytes) or len(one) != _KEY for one in public_keys):
        raise UsageError(f"public_keys must be a list of keys of {_KEY} bytes")


def _key(decryption_key: bytes | None) -> bytes | None:
    if decryption_key is not None and (
        not isinstance(decryption_key, bytes) or len(decryption_key) != _KEY
    ):
        raise UsageError(f"decryption_key must have {_KEY} bytes")
    return decryption_key


def _no_member(path: str) -> ByteView:
    raise InputError(f"{shown(path)}: can't be found from bytes: give the path of the index")


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
        # Three frames up to the caller: this function, `open`, and what gives errors their hints.
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
    """Write arrays to a file in the format of its ending, or to several files (`max_shard`)."""
    from wtxtgit.checkpoint import convert

    target, _ = convert.target_of(path)
    sources = [_source(path, array) for _, array in sorted(arrays.items())]
    _, without = convert.kept_tags(target, tags)
    if without:
        raise UsageError(f"{shown(path)}: {target.name} files can't hold {without[0]}")
    options = ReadOptions()
    convert.write_tensors(path, sources, tags, options, max_shard=max_shard, extras=extras)


def _source(path: Path, array: NumpyArray) -> TensorSource:
    # Bytes of what numpy has no dtype for are not void: their dtype would be lost.
    is_lost = array.dtype.is_extension or array.dtype.descr == RAW.str
    element = ELEMENTS.get(array.dtype.descr, None if is_lost else array.dtype.descr)
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
        # A layout binds the arrays to a file, so with other metadata the snapshot is made anew.
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
