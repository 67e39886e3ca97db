"""Operations on a container file of any format.

A file's format is detected (`registry`), and the format's record says which modules read, describe
and check it (`format`); its package is loaded only then.

Files in chunks of a container are examined too, if their formats hold nothing but tensors. A few
compressed bytes can claim millions of entries: what all of these files list is bounded by the space
that they take in the container.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wtxtgit.containers import json_text, ranges
from wtxtgit.containers.cursor import ListingBudget, quoted
from wtxtgit.containers.format import Container, FileSet, Format, OpenMember, Resealer, WholeFiles
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.registry import (
    FORMATS,
    by_name,
    detected,
    listed_by,
    refusal,
    stored_whole,
)
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError, NotRead
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import Cut
from wtxtgit.model.tensor import Description, Nested, PackedBytes, ReadOptions, Tensor

if TYPE_CHECKING:  # a filter checks nothing, and git starts it for every command
    from wtxtgit.model.findings import Findings, MemberFindings
    from wtxtgit.model.salvage import Salvage

_DEFAULTS = ReadOptions()


def split(data: ByteView) -> Cut:
    """Cut a file into extents that give its bytes when joined.

    `data` is the whole file as flat bytes; the arrays are views of it. A file that can't be read
    becomes opaque, with the reason: this never raises because of content.
    """
    known = detected(data)
    if known is None:
        return ranges.whole(data, _why_whole(data))
    try:
        return ranges.cut(known.name, data, known.read().read(data).ranges())
    except FormatError as error:
        # Content that breaks its format is stored all the same: clean never fails because of it.
        return ranges.whole(data, error.message)


def identify(data: ByteView) -> str | None:
    """Return the format of a file, also of a set or a file stored whole; None if unknown."""
    # Sets come last: a JSON file has to be searched for the keys of an index.
    known = detected(data) or stored_whole(data)
    if known is not None:
        return known.name
    listing = listed_by(data)
    return None if listing is None else listing.set_name


def describe(
    data: ByteView, options: ReadOptions = _DEFAULTS, open_member: OpenMember | None = None
) -> Description:
    """List a file's tensors and metadata; a file of an unknown format has none.

    `open_member` opens the files of a set; without it a set is not examined. Raises FormatError if
    the file has a format's magic but can't be read.
    """
    known = detected(data)
    if known is not None:
        return known.describe().describe(known.read().read(data), options)
    listed = None if open_member is None else _read_set(data, open_member)
    if listed is not None:
        return listed.describe(options)
    whole = _whole(data)
    if whole is not None:
        return whole.describe(data, options)
    reason = _why_unread(data)
    if is_foreign(data):
        raise FormatError(reason, offset=0, field="magic")
    return Description("opaque", metadata={"reason": reason})


def chunk_tags(known: Format, values: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Return values of JSON chunks as tags, so far as files of other formats can hold them."""
    texts = {
        name: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for name, value in values
        if name in known.chunks_as_tags
    }
    return {name: text for name, text in texts.items() if json_text.is_text(text)}


def is_compressed(data: ByteView) -> bool:
    """Whether parts of a file are compressed and could be stored plain; nothing is decoded."""
    known = detected(data)
    # Formats that are never compressed are skipped: describing a file takes time.
    if known is None or known.repack is None:
        return False
    parts = describe(data, ReadOptions(max_chunk=0)).parts
    return any(part.is_compressed for part in parts) and not any(p.is_encrypted for p in parts)


def unfinished(data: ByteView, options: ReadOptions = _DEFAULTS) -> Description | None:
    """Describe what there is of a file that its writer did not finish; None for any other file."""
    known = detected(data)
    if known is None or known.unfinished is None:
        return None
    reader = known.unfinished()
    return reader.describe_unfinalized(data, options) if reader.is_unfinalized(data) else None


def salvage(data: ByteView, options: ReadOptions = _DEFAULTS) -> Salvage:
    """Find out what a damaged file still holds; its nested `files` are replaced by their tensors.

    Raises FormatError if nothing can be found, and for formats without a salvager.
    """
    from wtxtgit.model.salvage import SalvagedTensor

    known = detected(data)
    if known is None or known.salvage is None:
        raise FormatError(_why_unread(data), offset=0, field="magic")
    left = known.salvage().salvage(data, options)
    salvaged, missing, notes = list(left.tensors), list(left.missing), list(left.notes)
    for file in left.files:
        untold: list[str] = []
        listed = tensors(Description(known.name, nested=(file.nested,)), options, untold)
        try:
            salvaged += (SalvagedTensor(tensor, file.state, file.why) for tensor in listed)
        except FormatError as error:
            missing.append(f"chunk {quoted(file.nested.name)}: {error.message}")
        # What an intact chunk holds besides tensors is not lost.
        notes += (line for line in untold if line.startswith("chunk "))
    return replace(
        left, tensors=tuple(salvaged), files=(), missing=tuple(missing), notes=tuple(notes)
    )


def in_one_line(refused: list[str]) -> Iterator[str]:
    """Yield one line about all that was refused because of a limit; nothing if nothing was."""
    if refused:
        more = len(refused) - 1
        yield f"{refused[0]} (and {more} more)" if more else refused[0]


def check_nested(description: Description, options: ReadOptions = _DEFAULTS) -> Findings:
    """Check the files in a container's chunks, which the container's own check does not."""
    from wtxtgit.model.findings import Findings

    findings = Findings()
    for chunk in description.nested:
        try:
            data = _opened(chunk)
        except FormatError as error:
            findings.refuse(error, chunk=chunk.name)
            continue
        if data is None:
            continue
        for problem in _checked(data, options, ListingBudget(chunk.stored)).errors:
            findings.error(problem.message, problem.field, None, chunk.name, kind=problem.kind)
    return findings


def _checked(data: ByteView, options: ReadOptions, listing: ListingBudget) -> Findings:
    """Check a file in a chunk."""
    known = detected(data)
    if known is None or known.nested is None:
        return check(data, options)
    from wtxtgit.model.findings import Findings

    try:
        return known.check().check(known.nested().read(data, listing), options)
    except FormatError as error:
        findings = Findings()
        findings.refuse(error)
        return findings


def tensors(
    description: Description,
    options: ReadOptions = _DEFAULTS,
    untold: list[str] | None = None,
    refused: list[str] | None = None,
) -> Iterator[Tensor]:
    """Yield all tensors of a file; those of files in its chunks are named `chunk/tensor`.

    What is decoded for this is released again; tensors that are kept decode theirs again when they
    are read. A chunk that can't be decoded or read yields no tensors: the reason is added to
    `untold`, or to `refused` if it is a limit. What else chunks hold besides tensors is added to
    `untold` too. Raises FormatError (limit) for too many tensors or too long names.
    """
    reasons = [] if untold is None else untold
    over = [] if refused is None else refused
    yield from description.tensors
    count = characters = 0
    # One store for all chunks: mostly their tensors are kept.
    listing = ListingBudget(sum(chunk.stored for chunk in description.nested))
    for chunk in description.nested:
        for tensor in _tensors_in(chunk, options, reasons, over, listing):
            count += 1
            characters += len(tensor.name)
            if count > MAX_TENSORS or characters > MAX_JSON:
                raise FormatError(
                    "chunks list too many tensors in total", kind="limit", field="tensors"
                )
            yield tensor


def lists_none(description: Description, refused: Sequence[str]) -> bool:
    """Whether a file that gives no tensors says that it has none.

    Otherwise it may have some in a form that is not read. `refused` is what `tensors` could not
    read of chunks.
    """
    known = by_name(description.format)
    is_closed = refused or description.unlisted or any(p.is_encrypted for p in description.parts)
    if known is None or known.write is None or is_closed:
        return False
    if known.wraps_tensors:
        return bool(description.nested or description.empty)
    return known.lists_only or not description.untold


def check(
    data: ByteView,
    options: ReadOptions = _DEFAULTS,
    open_member: OpenMember | None = None,
    checked: Iterable[MemberFindings] | None = None,
) -> Findings:
    """Check everything that a file says of its own bytes: structure, limits, hashes.

    A file of an unknown format has an error of kind "structure". Findings in `checked`, from files
    of a set that were already checked, in their order, are used instead of checking these files
    again.
    """
    try:
        known = detected(data)
        if known is not None:
            return known.check().check(known.read().read(data), options)
        listed = None if open_member is None else _read_set(data, open_member)
        if listed is not None:
            return listed.check(options) if checked is None else listed.combine(checked)
        whole = _whole(data)
        if whole is not None:
            return whole.check(data)
        raise FormatError(_why_unread(data), offset=0, field="magic")
    except FormatError as error:
        from wtxtgit.model.findings import Findings

        findings = Findings()
        findings.refuse(error)
        return findings


def members(data: ByteView, open_member: OpenMember) -> tuple[str, ...]:
    """Return the paths of a set's files; none for any other file, or if the index can't be read."""
    try:
        listed = _read_set(data, open_member)
    except FormatError:
        return ()
    return () if listed is None else listed.members


def check_members(
    data: ByteView, paths: Iterable[str], options: ReadOptions, open_member: OpenMember
) -> list[MemberFindings]:
    """Check files of the set whose index is `data`, given by their paths among `members`.

    Raises FormatError if the index can't be read or does not list such a file.
    """
    listed = _read_set(data, open_member)
    if listed is None:
        raise FormatError("not the index of a set", offset=0, field="magic")
    chosen = tuple(paths)
    if not set(chosen) <= set(listed.members):
        raise FormatError("the set no longer has the same files", offset=0, field="path")
    return list(listed.check_members(chosen, options))


def is_foreign(data: ByteView) -> bool:
    """Whether a file has the magic of a format that is refused by name."""
    return refusal(data) is not None


def read(data: ByteView) -> Container:
    """Read a file of a format that has a package; raises FormatError."""
    known = detected(data)
    if known is None and (whole := _whole(data)) is not None:
        container: Container = whole.read(data)
        return container
    if known is None:
        raise FormatError(_why_unread(data), offset=0, field="magic")
    return known.read().read(data)


def resealer(data: ByteView) -> Resealer | None:
    """Return what takes a file apart and puts it together again, None if nothing does."""
    known = detected(data)
    if known is None:
        known = stored_whole(data)
        chosen = None if known is None else known.reseal_whole
    else:
        chosen = known.reseal
    return None if chosen is None else chosen()


def _read_set(data: ByteView, open_member: OpenMember) -> FileSet | None:
    """Return the set of which a file is the index, None for any other file; raises FormatError."""
    listing = listed_by(data)
    if listing is None or listing.read_set is None:
        return None
    return listing.read_set().read(data, open_member)


def _whole(data: ByteView) -> WholeFiles | None:
    """Return the reader of a file that is recognised but stored whole, None for any other file."""
    known = stored_whole(data)
    return None if known is None or known.whole is None else known.whole()


def _why_unread(data: ByteView) -> str:
    """Say what a file is that is not read."""
    from wtxtgit.containers.identity import identity  # clean asks for no words

    found = identity(data)
    return _why_whole(data) if found.says_little else found.what or _why_whole(data)


def _why_whole(data: ByteView) -> str:
    whole = _whole(data)
    if whole is not None:
        return whole.REASON
    return refusal(data) or ("file has no known magic" if len(data) else "file is empty")


def _opened(nested: Nested) -> ByteView | None:
    """Return the bytes of a file in a chunk, None if its format is not examined.

    Raises FormatError.
    """
    data = nested.open()
    known = detected(data)
    if known is None:
        starts = (f.whole_magic for f in FORMATS if f.nested and f.whole is not None)
        return data if any(data[: len(magic)] == magic for magic in starts) else None
    return None if known.nested is None else data


def _tensors_in(
    nested: Nested,
    options: ReadOptions,
    untold: list[str],
    refused: list[str],
    listing: ListingBudget,
) -> Iterator[Tensor]:
    """Yield the tensors of a file in a chunk as `chunk/tensor`, in its order.

    A file that can't be read yields none. The reason is added to `untold`, as is what the file
    holds besides tensors.
    """
    where = f"chunk {quoted(nested.name)}"
    try:
        data = _opened(nested)
        inner = None if data is None else _described(data, options, listing)
    except FormatError as error:
        untold.append(NotRead.because(error, f"{where}: "))
        if error.kind == "limit":
            refused.append(untold[-1])
        return
    if inner is None or inner.format == "opaque":
        untold.append(f"{where} does not hold a file whose tensors can be read")
        return
    untold += [f"{what} of {where}" for what in (*inner.tags, *inner.untold)]
    for n, tensor in enumerate(inner.tensors):
        name = f"{nested.name}/{tensor.name}"
        if nested.offset is None:
            content = _again(nested, options, n, tensor)
            yield replace(tensor, name=name, held=content, offset=None)
        elif tensor.offset is None:
            yield replace(tensor, name=name)
        else:
            yield replace(tensor, name=name, offset=nested.offset + tensor.offset)


def _described(data: ByteView, options: ReadOptions, listing: ListingBudget) -> Description:
    """Describe a file in a chunk; raises FormatError."""
    known = detected(data)
    if known is not None and known.nested is not None:
        return known.describe().describe(known.nested().read(data, listing), options)
    whole = _whole(data)
    return describe(data, options) if whole is None else whole.describe(data, options, listing)


def _again(nested: Nested, options: ReadOptions, n: int, tensor: Tensor) -> ByteView | PackedBytes:
    """Return the bytes of a decoded file's tensor without keeping the whole file in memory."""
    size, offset = tensor.nbytes, tensor.offset
    if size == 0:
        return memoryview(b"")
    if offset is not None:
        return PackedBytes(size, lambda: nested.open()[offset : offset + size])
    return PackedBytes(size, lambda: _inner(nested, options).tensors[n].data)


def _inner(nested: Nested, options: ReadOptions) -> Description:
    return _described(nested.open(), options, ListingBudget(nested.stored))
