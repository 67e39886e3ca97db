"""Convert: writes the tensors of one file to a file of another format.

Nothing is rounded: a dtype that the other format lacks is refused. The written file is read again
and its tensors are compared before it gets its name.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from math import prod
from pathlib import Path

import numpy as np

from wtxtgit.checkpoint import packed
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import open_target, refuse_loss, refuse_text, shown_name
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.format import FileWriter, Format, SetWriter
from wtxtgit.containers.registry import by_name
from wtxtgit.errors import (
    MAX_NAME,
    CheckError,
    EnvironmentFailure,
    FormatError,
    InputError,
    UsageError,
    clipped,
    counted,
)
from wtxtgit.io.files import failures, named, replace_file, shown, view_file, write_output
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.temporary import new_folder
from wtxtgit.io.view import Buffer, ByteView, hashed, view_of, write_all
from wtxtgit.io.view import counted as with_progress
from wtxtgit.model.array import bounded_product
from wtxtgit.model.ggml import QUANTISED, nbytes_of
from wtxtgit.model.plain import JsonObject
from wtxtgit.model.tensor import ITEM_BYTES, Description, ReadOptions, Tensor, TensorSource
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.tensor_bytes import content_size, element_of

_MOST_CONTENT = 16
_LEAST_CONTENT = 1024**3
"""Views may repeat stored items: content may be so many times the file, or this many bytes."""

_EXTRAS = {"ecc": "parity", "tensor_hashes": "a hash of each tensor", "page_size": "page hashes"}
"""The names of `write_options` of formats in messages."""
Digests = dict[str, tuple[str, tuple[int, ...], bytes]]
"""Element, shape and SHA-256 of each tensor by name."""


def quoted(name: str) -> str:
    """Quote a name from a file for a message."""
    return ascii(clipped(name, MAX_NAME))


def sources_of(
    name: str,
    description: Description,
    options: ReadOptions,
    size: int,
    untold: list[str] | None = None,
    unfit: list[str] | None = None,
) -> list[TensorSource]:
    """Return all tensors of a file, or of a set with an index, of `size` bytes.

    `untold` receives what chunks contain besides tensors, `unfit` messages about tensors that can't
    be written to any file: those without bytes, or of unknown packed dtypes. Raises InputError for
    these if `unfit` is None, for tensors with equal names, and for content far larger than the
    file.
    """
    # Checked while they are listed: a file of a few bytes may list views of any size.
    most = max(_MOST_CONTENT * (description.size or size), _LEAST_CONTENT)
    tensors = []
    total = 0
    for tensor in any_format.tensors(description, options, untold):
        total += content_size(tensor)
        if total > most:
            raise InputError(
                f"{name}: its tensors would take over {most} bytes, though the file has only {size}"
            )
        why = _unfit(tensor)
        if why is None:
            tensors.append(tensor)
        elif unfit is None:
            raise InputError(f"{name}: tensor {quoted(tensor.name)} {why}")
        else:
            unfit.append(f"{name}: tensor {quoted(tensor.name)} {why}")
    for tensor_name, count in Counter(tensor.name for tensor in tensors).items():
        if count > 1:
            raise InputError(f"{name}: {count} tensors are named {quoted(tensor_name)}")
    return [source_of(name, tensor) for tensor in tensors]


def common_chunk(description: Description, sources: Sequence[TensorSource]) -> str | None:
    """Return the chunk that contains all tensors, if the format puts them into one."""
    known = registry.by_name(description.format)
    if known is None or not known.wraps_tensors:
        return None
    # Formats that wrap tensors name them `chunk/tensor`; a single chunk for all means nothing.
    chunks = {source.name.partition("/")[0] for source in sources}
    if len(chunks) != 1 or not all("/" in source.name for source in sources):
        return None
    return chunks.pop()


def without_chunk(sources: Iterable[TensorSource], chunk: str) -> list[TensorSource]:
    """Return the tensors under their own names in a chunk."""
    return [replace(source, name=source.name[len(chunk) + 1 :]) for source in sources]


def digests(sources: Iterable[TensorSource], progress: Progress | None = None) -> Digests:
    """Return element, shape and SHA-256 of each tensor, to compare with what was written."""
    return {
        source.name: (
            source.element,
            source.shape,
            hashed(sha256(), source.blocks(), progress).digest(),
        )
        for source in sources
    }


def refuse_errors(name: str, data: ByteView, options: ReadOptions) -> None:
    """Raise CheckError unless a file that was just written is valid."""
    for problem in any_format.check(data, options).errors:
        raise CheckError(f"{name}: the new file is not valid: {problem}")


def _unfit(tensor: Tensor) -> str | None:
    """Return why a tensor can't be written to any file, None if it can."""
    if tensor.absent is not None:
        return f"has no bytes: {tensor.absent}"
    if element_of(tensor) is None:
        return f"is {tensor.dtype}, which can be listed but not converted"
    return None


def source_of(name: str, tensor: Tensor) -> TensorSource:
    """Return a tensor as a source for writing, without padding.

    Raises InputError for too few bytes, none, and items of an unknown dtype.
    """
    element = element_of(tensor)
    if element is None or tensor.absent is not None:
        raise InputError(
            f"{name}: tensor {quoted(tensor.name)} {_unfit(tensor)}",
            hint="wtxtgit cat FILE TENSOR -o FILE.bin writes its bytes as they are",
        )
    shape = tensor.logical_shape
    if element in QUANTISED:
        most = QUANTISED[element][1].block * tensor.nbytes
        fits = 0 <= bounded_product(1, shape, most) <= most
        size = nbytes_of(element, shape) if fits else None
        nbytes = -1 if size is None else size
    else:
        items = prod(shape) if tensor.strides else bounded_product(1, shape, tensor.nbytes)
        nbytes = items * (ITEM_BYTES.get(element) or np.dtype(element).itemsize)
    if tensor.strides is None:
        if not 0 <= nbytes <= tensor.nbytes:
            raise InputError(f"{name}: tensor {quoted(tensor.name)} does not fit its shape")
        # Writers of some formats count padding in.
        tensor = tensor.first(nbytes)
    return TensorSource(tensor.name, element, shape, nbytes, partial(tensor_bytes.blocks, tensor))


@dataclass(frozen=True, slots=True, repr=False)
class Conversion(JsonObject):
    """What was written, and what of the source was left out."""

    source: str
    format: str
    files: tuple[str, ...]
    tensors: int
    bytes: int
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Conversion {self._said()}>"

    def _said(self) -> str:
        first, more = self.files[0], len(self.files) - 1
        where = f"{first} and {more} more" if more else first
        lost = ((len(self.skipped), "skipped"), (len(self.dropped), "dropped"))
        told = [counted(self.tensors, "tensor"), *(f"{n} {what}" for n, what in lost if n)]
        return f"{where}: {self.format}, {', '.join(told)}"

    def _repr_html_(self) -> str:
        """Return a table of what the new file lacks as HTML, for IPython."""
        from wtxtgit.model.notebook import table

        rows = [("skipped", one) for one in self.skipped]
        rows += [("dropped", one) for one in self.dropped]
        rows += [("note", one) for one in self.notes]
        return table(self._said(), ("", "what"), rows, len(rows))


def target_of(out: Path) -> tuple[Format, FileWriter]:
    """Return the format that an output's ending names, and its writer; raises UsageError."""
    named = registry.by_ending(out.suffix)
    if named is None or named.write is None:
        endings = [ending for f in registry.FORMATS if f.write for ending in f.endings]
        raise UsageError(
            f"{shown(out)}: the ending has to be that of a format, one of {', '.join(endings)}"
        )
    return named, named.write()


def set_writer_of(target: Format) -> SetWriter:
    """Return the writer of a format's sets; raises UsageError if it has none."""
    if target.write_set is None:
        with_sets = ", ".join(f.name for f in registry.FORMATS if f.write_set)
        raise UsageError(f"--max-shard can't write {target.name}, only {with_sets}")
    return target.write_set()


def convert(
    source: str,
    out: Path,
    options: ReadOptions,
    *,
    max_shard: int | None = None,
    inline_data: bool = False,
    skip: bool = False,
    extras: Mapping[str, object] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Write the tensors of `source` (a file or REV:PATH) to `out`, in the format of its ending.

    With `max_shard` bytes the tensors go to several files beside one another, named after `out`.
    `inline_data` writes the bytes of tensors into MLCP. With `skip`, tensors that the other format
    can't hold are left out. `extras` are among the `write_options` of the format (None or False
    mean not requested). Raises UsageError for endings and options, InputError for what the other
    format can't hold, CheckError if the source is not valid.
    """
    target, writer = target_of(out)
    set_writer = None if max_shard is None else set_writer_of(target)
    if inline_data and not target.lists_only:
        endings = ", ".join(e for f in registry.FORMATS if f.lists_only for e in f.endings)
        raise UsageError(f"--inline-data is for {endings} files")
    if inline_data and max_shard is not None:
        raise UsageError("--inline-data is for one file: shards hold the bytes anyway")
    asked = asked_of(target, extras or {})
    description, sources, dropped, unfit = _read(source, options, threads)
    notes = []
    is_own = description.own is not None and by_name(description.format) is target
    # A file of the same format keeps its chunks, unless its tensors are all that it has.
    chunk = None if is_own else common_chunk(description, sources)
    if chunk is not None:
        sources = without_chunk(sources, chunk)
        notes.append(f"tensors are named as if inside chunk {quoted(chunk)}")
    sources, tags = packed.unpacked(target, sources, description.tags)
    kept, without = kept_tags(target, tags)
    # Before hashing, which takes as long as reading the whole file.
    listed = sources
    fitted = packed.fitted(target, listed, kept)
    unfit += [f"{shown(out)}: {one}" for one in fitted.unfit]
    sources = fitted.sources
    if skip and sources:
        sources, refused = _accepted(writer, sources)
        unfit += [f"{shown(out)}: {one}" for one in refused]
    if unfit and not (skip and sources):
        more = f" (and {len(unfit) - 1} more)" if len(unfit) > 1 else ""
        hint = "--skip leaves out and lists what can't be kept" if sources else None
        raise InputError(f"{unfit[0]}{more}", hint=hint or _other_endings(listed))
    notes += fitted.notes
    values: Mapping[str, object] = fitted.tags
    if description.own is not None and is_own:
        # All metadata is kept, not only strings.
        values = description.own()
        dropped = [what for what in dropped if what not in description.untold]
    else:
        dropped += without
    if set_writer is None:
        dropped[:0] = _left_out(target, [source.name for source in sources], inline_data)
    if dropped or unfit:
        refuse_loss(out, source)
    # Read, written, and read again.
    has_bytes = inline_data or not target.lists_only
    expect(progress, (1 + 2 * has_bytes) * sum(source.nbytes for source in sources))
    # A shard holds whole tensors, so a single one may exceed the limit.
    if set_writer is not None and max_shard is not None:
        notes += [
            f"tensor {quoted(source.name)} alone is larger than a file may be"
            for source in sources
            if source.nbytes > max_shard
        ]
        files = write_set(out, set_writer, sources, values, max_shard, options, asked, progress)
    else:
        write_file(
            out,
            sources,
            values,
            options,
            inline_data=inline_data,
            asked=asked,
            progress=progress,
        )
        files = [out]
    return Conversion(
        source,
        target.name,
        tuple(str(file) for file in files),
        len(sources),
        sum(file.stat().st_size for file in files),
        tuple(dropped),
        tuple(notes),
        tuple(unfit),
    )


def asked_of(target: Format, extras: Mapping[str, object]) -> dict[str, object]:
    """Return the extras that are requested; raises UsageError if the format can't write one."""
    asked = {key: value for key, value in extras.items() if value not in (None, False)}
    for key in asked:
        if key not in target.write_options:
            endings = [e for f in registry.FORMATS if key in f.write_options for e in f.endings]
            raise UsageError(f"{_EXTRAS[key]} is for {', '.join(endings)} files")
    return asked


def _accepted(
    writer: FileWriter, sources: Sequence[TensorSource]
) -> tuple[list[TensorSource], list[str]]:
    """Split tensors into those that a writer accepts, and messages about the others."""
    with contextlib.suppress(FormatError):
        writer.build_model(sources, {})
        return list(sources), []
    taken, refused = [], []
    for source in sources:
        try:
            writer.build_model([source], {})
        except FormatError as error:
            refused.append(error.message)
        else:
            taken.append(source)
    return taken, refused


def kept_tags(target: Format, tags: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Split tags into those that a format can hold, and messages about the others."""
    keeps = target.keeps_tag
    kept = {key: value for key, value in tags.items() if keeps and keeps(key)}
    return kept, [f"tag {quoted(key)}" for key in tags if key not in kept]


def write_file(
    out: Path,
    sources: Sequence[TensorSource],
    tags: Mapping[str, object],
    options: ReadOptions,
    *,
    inline_data: bool,
    asked: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Write tensors as a file, checked before it gets its name.

    Returns messages about what is left out. `progress` gets counts of the tensors' bytes as they
    are hashed, of bytes that are written, and of the tensors' bytes as they are read again. Raises
    UsageError, InputError and CheckError as `convert` does.
    """
    target, writer = target_of(out)
    build: Callable[..., Iterator[Buffer]] = writer.build_model
    extra = {**(asked or {}), **({"inline_data": True} if inline_data else {})}
    if target.wraps_tensors:
        # What could not be read again.
        extra["max_chunk"] = options.max_chunk
    with named(out):
        pieces = build(sources, tags, **extra)
    # After the writer has accepted them: this takes as long as reading all.
    wanted = digests(sources, progress)
    has_bytes = inline_data or not target.lists_only
    left_out = _left_out(target, list(wanted), inline_data)
    if target.sole_name is not None:
        (digest,) = wanted.values()
        wanted = {target.sole_name: digest}
    _write(out, with_progress(pieces, progress), wanted if has_bytes else None, options, progress)
    return left_out


def _left_out(target: Format, names: Sequence[str], inline_data: bool) -> list[str]:
    """Return messages about what a single file of a format lacks of tensors with these names."""
    if target.lists_only and not inline_data:
        return [f"bytes of all {len(names)} tensors: --inline-data includes them"]
    # Such a format, npy, holds one array without a name.
    has_none = target.sole_name is not None and target.sole_name not in names
    return [f"name {quoted(name)}" for name in names] if has_none else []


def _read(
    name: str, options: ReadOptions, threads: int | None
) -> tuple[Description, list[TensorSource], list[str], list[str]]:
    """Read the source: its description, tensors, what is left out, and which tensors can't be
    written.
    """
    target = open_target(name, threads=threads)
    if target.report is not None:
        if target.report.lacks_payload:
            refuse_text(target.report, shown_name(name))
        raise InputError(
            f"{name}: a text of arrays, not of a checkpoint file",
            hint=f"wtxtgit restore -o FILE.npz -- {shlex.quote(name)} writes its arrays",
        )
    open_member = members(name, threads=threads)
    if any_format.identify(target.data) is None:
        why = "file has no known magic" if target.data.nbytes else "file is empty"
        raise InputError(f"{name}: not a known checkpoint: {why}")
    for problem in any_format.check(target.data, options, open_member).errors:
        raise problem.error(
            f"{name}: {problem}",
            hint=f"wtxtgit verify -- {shlex.quote(name)} lists all problems",
        )
    description = any_format.describe(target.data, options, open_member)
    # Tensors may come from files in chunks, which have hashes of their own.
    for problem in any_format.check_nested(description, options).errors:
        raise CheckError(f"{name}: the file in {problem}")
    known = registry.by_name(description.format)
    told: dict[str, str] = {}
    if known is not None and known.chunk_values is not None:
        told = any_format.chunk_tags(known, known.chunk_values().chunk_values(target.data, options))
    description = replace(description, tags=told | description.tags)
    closed = {f"chunk {quoted(name)}" for name in told}
    dropped = [what for what in description.untold if what not in closed]
    unfit: list[str] = []
    inner: list[str] = []
    sources = sources_of(name, description, options, len(target.data), inner, unfit)
    dropped += inner
    # An empty output would look like a successful conversion.
    if not sources and not unfit and not any_format.lists_none(description, inner):
        encrypted = any(part.is_encrypted for part in description.parts)
        hint = "--key F decrypts the encrypted parts" if encrypted else None
        raise InputError(f"{name}: {description.format} file without tensors", hint=hint)
    return description, sources, dropped, unfit


def write_tensors(
    out: Path,
    sources: Sequence[TensorSource],
    tags: Mapping[str, str],
    options: ReadOptions,
    *,
    max_shard: int | None = None,
    extras: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Write all of some tensors to a file of the format that its ending names, or to a set.

    Returns messages about what else is left out. Options, progress and errors are those of
    `convert`.
    """
    target, _ = target_of(out)
    asked = asked_of(target, extras or {})
    fitted = packed.fitted(target, sources, tags)
    if fitted.unfit:
        raise InputError(f"{shown(out)}: {fitted.unfit[0]}", hint=_other_endings(sources))
    expect(progress, 3 * sum(source.nbytes for source in fitted.sources))
    if max_shard is not None:
        build = set_writer_of(target)
        write_set(out, build, fitted.sources, fitted.tags, max_shard, options, asked, progress)
        return []
    # A list of tensors without their bytes would keep nothing.
    return write_file(
        out,
        fitted.sources,
        fitted.tags,
        options,
        inline_data=target.lists_only,
        asked=asked,
        progress=progress,
    )


def _other_endings(sources: Sequence[TensorSource]) -> str | None:
    """Return a hint at the endings of formats that have all dtypes of some tensors."""
    fitting = [
        f"FILE{f.endings[0]}"
        for f in registry.FORMATS
        if f.write and f.sole_name is None and not packed.fitted(f, sources, {}).unfit
    ]
    return f"{' or '.join(fitting)} can hold all of these dtypes" if fitting else None


def _write(
    out: Path,
    pieces: Iterable[Buffer],
    wanted: Digests | None,
    options: ReadOptions,
    progress: Progress | None,
) -> None:
    """Write a file, read it again, and give it its name if it is correct.

    `wanted` is None for a file without the bytes of tensors.
    """

    def write(descriptor: int) -> None:
        # Checked as a temporary file: a wrong one never gets the requested name.
        write_all(descriptor, pieces)
        data = view_of(descriptor)
        refuse_errors(shown(out), data, options)
        if wanted is not None:
            description = any_format.describe(data, options)
            _prove(shown(out), description, len(data), wanted, options, progress)

    write_output(out, write)


def write_set(
    out: Path,
    writer: SetWriter,
    sources: Sequence[TensorSource],
    tags: Mapping[str, object],
    max_shard: int,
    options: ReadOptions,
    asked: Mapping[str, object],
    progress: Progress | None = None,
) -> list[Path]:
    """Write the files of a set, read the set again, and move the files into place.

    Arguments and errors are as in `write_file`. Returns the files, the index last.
    """
    with named(out):
        build: Callable[..., Iterable[tuple[str, Iterator[Buffer]]]] = writer.build_set
        built = build(sources, tags, out.stem, max_shard, **asked)
    wanted = digests(sources, progress)
    # The set is checked in a folder of its own.
    with contextlib.ExitStack() as until:
        with failures(out, missing=EnvironmentFailure):
            folder = until.enter_context(new_folder(out.parent))
        names = []
        for file_name, pieces in built:
            written = with_progress(pieces, progress)
            replace_file(folder / file_name, partial(write_all, content=written))
            names.append(file_name)
        index, data = _index_of(folder, names)
        open_member = members(index)
        for problem in any_format.check(data, options, open_member).errors:
            raise CheckError(f"{shown(out)}: the new file is not valid: {problem}")
        description = any_format.describe(data, options, open_member)
        _prove(shown(out), description, len(data), wanted, options, progress)
        files = [out.with_name(file_name) for file_name in names]
        # The index is moved last: until then readers find the previous set.
        for file in files:
            with failures(file, missing=EnvironmentFailure):
                (folder / file.name).replace(file)
    return files


def _index_of(folder: Path, names: Sequence[str]) -> tuple[str, ByteView]:
    """Return the name and content of the file that lists a set.

    For numbered files it is constructed.
    """
    made = registry.index_made(names) if len(names) > 1 else None
    if made is not None and not names[-1].endswith(registry.index_endings()):
        return str(folder / names[-1]), made
    return str(folder / names[-1]), view_file(folder / names[-1])


def _prove(
    name: str,
    description: Description,
    size: int,
    wanted: Digests,
    options: ReadOptions,
    progress: Progress | None,
) -> None:
    """Raise CheckError unless a file's tensors are the wanted ones."""
    sources = sources_of(name, description, options, size)
    chunk = common_chunk(description, sources)
    if chunk is not None and wanted.keys() != {source.name for source in sources}:
        sources = without_chunk(sources, chunk)
    written = digests(sources, progress)
    for key in {**wanted, **written}:
        if wanted.get(key) != written.get(key):
            raise CheckError(f"{name}: tensor {quoted(key)} would change")
