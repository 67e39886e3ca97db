"""Inspect: the contents of a file, as data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from wtxtgit.checkpoint.contents import NATIVE, ReadBudget, native_metadata, native_tensors
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import OpenedTarget, open_target, shown_name
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.identity import FileIdentity, identity, wrong_under
from wtxtgit.errors import PICKLE, FormatError, InputError, NotRead, counted
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.view import Pages
from wtxtgit.model.array import Extent
from wtxtgit.model.findings import total
from wtxtgit.model.tensor import Description, ReadOptions, Tensor
from wtxtgit.report.inspect import FilePart, Inspection, Statistics, TensorFacts, TensorPicture
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.statistics import statistics
from wtxtgit.tensors.tensor_bytes import content_size
from wtxtgit.text import ledger
from wtxtgit.text.file import TextFile
from wtxtgit.text.grammar import DELTA_MAGIC
from wtxtgit.text.verify import TextReport
from wtxtgit.trust.age.armor import is_age

_SET = "a list of other files, which are stored separately"


_OTHERS = (
    ("delta", DELTA_MAGIC, "wtxtgit diff shows what it changes, wtxtgit verify checks it"),
    ("ledger", ledger.MAGIC, "wtxtgit log lists the generations, wtxtgit verify checks it"),
)
"""Files of ours that hold no tensors, by how they begin, and what shows their content."""


def inspect(
    name: str,
    options: ReadOptions,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    pictured: int = 0,
) -> Inspection:
    """Inspect a file, a URL or a blob as REV:PATH.

    An existing file takes precedence over a revision. A blob is inspected as the file that a
    checkout would write. The `pictured` largest tensors get pictures, for which they are read once
    more. Raises InputError and EnvironmentFailure.
    """
    target = open_target(name, threads=threads)
    if is_age(target.data):
        return _inspect_encrypted(target)
    if target.report is not None:
        return _inspect_text(target, target.report, threads, progress, pictured)
    for kind, magic, note in _OTHERS:
        if target.data[: len(magic)] == magic:
            return Inspection(target.name, kind, len(target.data), kind, notes=(note,))
    return _inspect_container(target, options, threads, progress, pictured)


def _inspect_encrypted(target: OpenedTarget) -> Inspection:
    from wtxtgit.checkpoint.encrypted import envelope

    shows = envelope(target.data, target.name)
    note = f"{shows}, a text of {shows.content_size} bytes: wtxtgit decrypt decrypts it"
    facts: dict[str, object] = {
        "recipients": shows.recipients,
        "content_size": shows.content_size,
        "is_armored": shows.is_armored,
    }
    return Inspection(target.name, "age", len(target.data), "age", metadata=facts, notes=(note,))


def _inspect_container(
    target: OpenedTarget,
    options: ReadOptions,
    threads: int | None,
    progress: Progress | None,
    pictured: int,
) -> Inspection:
    data = target.data
    cut, found = any_format.split(data), identity(data)
    reason = cut.reason if found.says_little else found.what or cut.reason
    sizes = {array.name: array.data.nbytes for array in cut.arrays}
    parts = []
    offset = 0
    for extent in cut.layout.extents:
        part = _part(extent, offset, sizes)
        parts.append(part)
        offset += part.size
    try:
        description = any_format.describe(data, options, members(target.name, threads=threads))
    except FormatError as error:
        if error.kind == PICKLE:
            raise InputError(f"{shown_name(target.name)}: {error.message}") from None
        unfinished = any_format.unfinished(data, options)
        kind = any_format.identify(data) or "opaque"
        if reason is None or kind in registry.set_names():
            reason = NotRead.because(error)
        if unfinished is None:
            return Inspection(
                target.name,
                kind,
                len(data),
                cut.layout.format,
                reason,
                tuple(parts),
            )
        description = unfinished
    arrays: dict[tuple[int | None, str | None], str | None] = {
        (part.offset, part.name): part.array for part in parts if part.kind == "tensor"
    }
    # Views may repeat bytes: a small file can list tensors of any size.
    budget = ReadBudget.of(description, options, len(data))
    refused: list[str] = []
    listed = list(any_format.tensors(description, options, refused=refused))
    # Each is read for its hash, and for its values.
    expect(progress, 2 * sum(tensor.nbytes for tensor in listed if tensor.absent is None))
    drawn = largest(listed, pictured)
    facts = tuple(
        tensor_facts(
            tensor,
            budget,
            arrays.get((tensor.offset, tensor.name)),
            progress,
            is_pictured=number in drawn,
        )
        for number, tensor in enumerate(listed)
    )
    return Inspection(
        target.name,
        description.format,
        len(data),
        cut.layout.format,
        reason if description.size is None else _SET,
        tuple(_with_details(parts, facts, description)),
        facts,
        description.metadata,
        (*_notes(target.name, description, options, found), *any_format.in_one_line(refused)),
    )


def _inspect_text(
    target: OpenedTarget,
    report: TextReport,
    threads: int | None,
    progress: Progress | None,
    pictured: int,
) -> Inspection:
    """Inspect a native text, or a damaged one: its own arrays, as they were given to be written."""
    index = report.index
    if index.stop is not None and not index.has_header:
        raise InputError(f"{target.name}: {index.stop}")
    layout = report.layout
    if layout is not None and layout.is_container:
        # The text of a container that could not be restored: only its arrays are shown.
        layout = None
    pages = Pages(progress)
    facts = []
    with ExitStack() as until:
        text = None
        # Values are only shown of a text that verifies.
        if report.ok:
            text = TextFile(target.name, target.data, pages, threads, until, index.payload)
        arrays = {array.name: array for array in index.arrays}
        tensors = native_tensors((array.claim for array in index.arrays), layout)
        listed = [(arrays[array], tensor) for array, tensor in tensors]
        expect(progress, sum(array.nbytes for array, _ in listed))
        drawn = largest([array for array, _ in listed], pictured)
        for number, (array, tensor) in enumerate(listed):
            values = shown = None
            if text is not None:
                text.fill([array.name])
                start = text.places[array.name]
                held = replace(tensor, held=text.view[start : start + array.nbytes])
                values = statistics(held)
                shown = _picture(held, values) if number in drawn else None
            facts.append(
                TensorFacts(
                    tensor.name,
                    tensor.label,
                    tensor.shape,
                    array.nbytes,
                    array.claim.sha256.hex(),
                    array=None if layout is None else array.name,
                    statistics=values,
                    picture=shown,
                )
            )
    reason = None
    if report.lacks_payload:
        reason = f"a detached text: {report.problems[0].message}, wtxtgit fetch fetches them"
    elif not report.ok:
        reason = f"damaged: {counted(total(report.problems), 'problem')}, as wtxtgit verify lists"
    return Inspection(
        target.name,
        NATIVE,
        len(target.data),
        NATIVE,
        reason,
        tensors=tuple(facts),
        metadata=_header(report),
    )


def _header(report: TextReport) -> dict[str, object]:
    """Return what the text states about its generation, and the hashes of its root."""
    index = report.index
    header: dict[str, object] = {**native_metadata(index), "pending": index.pending}
    audit = header.pop("audit", None)
    if index.root is not None:
        header["sha256_all"] = index.root.sha256_all.hex()
        header["merkle_prev"] = index.root.merkle_prev.hex()
        header["merkle_this"] = index.root.merkle_this.hex()
    if index.signature is not None:
        header["keyid"] = index.signature.keyid
    if audit is not None:
        header["audit"] = audit
    return header


def _part(extent: Extent, offset: int, sizes: dict[str, int]) -> FilePart:
    if extent.array is None:
        kind, size = ("zeros", extent.zeros) if extent.zeros else ("hex", len(extent.hex or b""))
        return FilePart(offset, size or 0, kind)
    kind = "tensor" if extent.is_tensor else "part"
    size = sizes[extent.array]
    return FilePart(offset, size, kind, extent.array, extent.name, extent.dtype, extent.shape)


def _with_details(
    parts: Iterable[FilePart], facts: Iterable[TensorFacts], description: Description
) -> Iterator[FilePart]:
    """Yield the parts with the container's description of them, and the tensors in them."""
    details = {part.offset: part.about for part in description.parts}
    inside: defaultdict[str, list[str]] = defaultdict(list)
    for tensor in facts:
        chunk, slash, name = tensor.name.partition("/")
        # A tensor of a file in a chunk has no array of its own in the text.
        if slash and tensor.array is None:
            inside[chunk].append(name)
    for part in parts:
        children = inside.get(part.name or "", ()) if part.kind == "part" else ()
        detail = details.get(part.offset)
        if detail is None and not children:
            yield part
        else:
            yield replace(part, detail=detail, children=tuple(children))


def _notes(
    name: str, description: Description, options: ReadOptions, found: FileIdentity
) -> Iterator[str]:
    if not found.is_fault and (wrong := wrong_under(name, found)) is not None:
        yield wrong
    alone = registry.part_note(name)
    if alone is not None:
        yield f"{alone}: inspect the folder instead"
    yield from description.unlisted
    compressed = sum(part.is_compressed for part in description.parts)
    encrypted = sum(part.is_encrypted for part in description.parts)
    if compressed and not encrypted:
        parts = counted(compressed, "compressed part")
        yield (
            f"{parts}: git makes small deltas only of uncompressed data; wtxtgit repack "
            "uncompresses it"
        )
    if encrypted and options.decryption_key is None:
        yield f"{counted(encrypted, 'encrypted part')}: --key F decrypts what is encrypted"


def tensor_facts(
    tensor: Tensor,
    budget: ReadBudget,
    array: str | None,
    progress: Progress | None,
    *,
    is_pictured: bool = False,
) -> TensorFacts:
    """Return the facts about a tensor, which is read twice if the budget allows it.

    `progress` gets counts of bytes.
    """
    length = content_size(tensor)
    digest = values = shown = None
    # The budget comes last: a tensor without bytes costs nothing.
    absent = tensor.absent or budget.refusal(tensor)
    if absent is None:
        try:
            digest = tensor_bytes.sha256_of(tensor, progress).hex()
            values = statistics(tensor, progress)
            shown = _picture(tensor, values) if is_pictured else None
        except FormatError as error:
            digest, absent = None, NotRead.because(error)
    return TensorFacts(
        tensor.name,
        tensor.dtype,
        tensor.shape,
        length,
        digest,
        tensor.offset,
        array,
        tensor.order,
        values,
        absent,
        shown,
    )


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


def largest(things: Sequence[_Sized], most: int) -> frozenset[int]:
    """Return the numbers of the `most` largest things; among equal ones the first."""
    order = sorted(range(len(things)), key=lambda number: -things[number].nbytes)
    return frozenset(order[:most])


def _picture(tensor: Tensor, values: Statistics | None) -> TensorPicture | None:
    # Imported here: most inspections draw nothing.
    from wtxtgit.tensors.pictures import picture

    return None if values is None else picture(tensor, values)
