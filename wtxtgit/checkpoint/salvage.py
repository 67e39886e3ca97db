"""What a damaged container still has, and writing its intact tensors to a file.

A tensor is kept whole or not at all. A tensor that no hash proves is kept if all its bytes are
there, and this is reported: most formats have no hashes. The damaged file is never overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.checkpoint import convert
from wtxtgit.checkpoint.open import refuse_itself, shown_name
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.salvage import lost
from wtxtgit.errors import CheckError, FormatError, InputError
from wtxtgit.io.files import named, shown, write_output
from wtxtgit.io.progress import Portion, Progress
from wtxtgit.io.view import Buffer, ByteView, counted, view_of, write_all
from wtxtgit.model.findings import LIMITS
from wtxtgit.model.plain import JsonObject
from wtxtgit.model.salvage import Salvage, SalvagedTensor, Span, TensorState
from wtxtgit.model.tensor import Description, PackedBytes, ReadOptions, Tensor
from wtxtgit.tensors.tensor_bytes import contents_of

_MOST_FINDINGS = 5
"""Most findings that are listed for a file without lost tensors; `verify` lists all."""
_NOTHING = "no tensor is intact, so nothing was written"
_OWN_FORMAT = "which no other format can hold"


@dataclass(frozen=True, slots=True)
class TensorFate(JsonObject):
    """What is left of a tensor of a damaged file; `lost` are ranges of its stored bytes."""

    KEYS = "name dtype shape state why? lost"

    name: str
    dtype: str
    shape: tuple[int, ...]
    state: TensorState
    why: str | None = None
    lost: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerRecovery(JsonObject):
    """What a damaged container still has.

    `state` is `intact` if `verify` finds no error, `whole` if no tensor is lost, `partial` if
    something is, `lost` if nothing can be read, `unread` if a limit was in the way. `missing`
    describes what is lost beside the listed tensors, `dropped` what is not in `output`.
    """

    KEYS = "path format state tensors missing notes dropped output?"

    path: str
    format: str
    state: str
    tensors: tuple[TensorFate, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    output: str | None = None

    def __repr__(self) -> str:
        return f"<ContainerRecovery {self._said()}>"

    def _said(self) -> str:
        counts = ", ".join(f"{self.count(one)} {one}" for one in TensorState if self.count(one))
        return f"{self.path}: {self.format}, {self.state}, {counts or 'no tensors'}"

    def _repr_html_(self) -> str:
        """Return a table of the tensors as HTML, for IPython."""
        from wtxtgit.model.notebook import shape_of, table

        rows = ((t.name, t.dtype, shape_of(t.shape), t.state, t.why) for t in self.tensors)
        columns = ("tensor", "dtype", "shape", "state", "why")
        return table(self._said(), columns, rows, len(self.tensors))

    def count(self, state: TensorState) -> int:
        """Return the number of tensors in a state."""
        return sum(tensor.state is state for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class SalvagedContainer:
    """A damaged container, what is left of it, and the report about that."""

    data: ByteView
    left: Salvage
    report: ContainerRecovery


def is_container(data: ByteView) -> bool:
    """Tell whether a file has the magic of a format whose tensors can be salvaged."""
    known = registry.detected(data)
    return known is not None and known.salvage is not None


def salvage(
    target: str, data: ByteView, options: ReadOptions, progress: Progress | None = None
) -> SalvagedContainer:
    """Find what the container `data`, which `target` names, still has; raises nothing.

    `progress` gets counts of the file's bytes.
    """
    told = Portion(progress, data.nbytes)
    done = _salvaged(target, data, replace(options, progress=told))
    told.finish()
    return done


def _salvaged(target: str, data: ByteView, options: ReadOptions) -> SalvagedContainer:
    kind = registry.detect(data)
    try:
        left = any_format.salvage(data, options)
    except FormatError as error:
        if error.kind in LIMITS:
            report = ContainerRecovery(target, kind, "unread", notes=(error.message,))
        else:
            report = ContainerRecovery(target, kind, "lost", missing=(error.message,))
        return SalvagedContainer(data, Salvage(), report)
    left = replace(left, tensors=tuple(map(_decoded, left.tensors)))
    notes = list(left.notes)
    state = "partial"
    if not left.missing and all(one.state is not TensorState.LOST for one in left.tensors):
        findings = any_format.check(data, options)
        state = "whole" if findings.errors else "intact"
        notes += map(str, [*findings.errors, *findings.warnings][:_MOST_FINDINGS])
    known = registry.detected(data)
    if state == "partial" and known is not None and known.parity is not None:
        notes.append("--ecc mends a file from its own parity, if it has any")
    fates = tuple(map(_fate, left.tensors))
    return SalvagedContainer(
        data, left, ContainerRecovery(target, kind, state, fates, left.missing, tuple(notes))
    )


def write(
    done: SalvagedContainer,
    out: Path,
    options: ReadOptions,
    progress: Progress | None = None,
) -> ContainerRecovery:
    """Write the intact tensors, in the format that the output's ending names.

    If there are none nothing is written. Raises UsageError for an unknown ending and if `out` is
    the damaged file itself, InputError for tensors that the format can't hold.
    """
    refuse_itself(out, done.report.path)
    left, name = done.left, shown_name(done.report.path)
    known = registry.by_ending(out.suffix)
    numbers = [n for n, one in enumerate(left.tensors) if one.state.is_whole]
    is_own = known is not None and known.name == done.report.format
    # An index of tars has rows instead of tensors.
    if left.keep is not None and is_own and (numbers or not left.tensors):
        with named(out):
            pieces = left.keep(numbers)
        _keep(out, pieces, [left.tensors[n].tensor for n in numbers], options, progress)
        return replace(done.report, output=str(out))
    target, _ = convert.target_of(out)
    if done.report.state == "unread":
        return done.report
    if not numbers:
        return replace(done.report, notes=(*done.report.notes, _NOTHING))
    plain: dict[str, Tensor] = {}
    dropped = []
    for tensor in (left.tensors[n].tensor for n in numbers):
        if tensor.element is None:
            what = f"{convert.quoted(tensor.name)} of {tensor.dtype}"
            dropped.append(f"tensor {what}, {_OWN_FORMAT}")
        elif plain.setdefault(tensor.name, tensor) is not tensor:
            dropped.append(f"another tensor {convert.quoted(tensor.name)}")
    if not plain:
        raise InputError(f"{name}: all tensors are of dtypes {_OWN_FORMAT}")
    description = Description(done.report.format, tuple(plain.values()))
    sources = convert.sources_of(name, description, options, len(done.data))
    chunk = convert.common_chunk(description, sources)
    if chunk is not None:
        sources = convert.without_chunk(sources, chunk)
    tags, without = convert.kept_tags(target, left.tags)
    dropped += without
    dropped += convert.write_tensors(out, sources, tags, options, progress=progress)
    return replace(done.report, dropped=tuple(dropped), output=str(out))


def _decoded(one: SalvagedTensor) -> SalvagedTensor:
    """Return the tensor, as lost if its bytes can't be decoded."""
    if not one.state.is_whole:
        return one
    if one.tensor.absent is not None:
        return lost(one.tensor, one.tensor.absent)
    if not isinstance(one.tensor.held, PackedBytes):
        return one
    try:
        nbytes = len(one.tensor.view)
    except FormatError as error:
        return lost(one.tensor, error.message)
    if nbytes != one.tensor.nbytes:
        return lost(one.tensor, f"it has {nbytes} bytes, not {one.tensor.nbytes}")
    return one


def _fate(one: SalvagedTensor) -> TensorFate:
    tensor = one.tensor
    return TensorFate(tensor.name, tensor.label, tensor.shape, one.state, one.why, one.lost)


def _keep(
    out: Path,
    pieces: Iterable[Buffer],
    tensors: Sequence[Tensor],
    options: ReadOptions,
    progress: Progress | None,
) -> None:
    """Write a file of the same format with only these tensors, and read it again."""
    nbytes = sum(tensor.nbytes for tensor in tensors)
    read, written, again = (Portion(progress, nbytes) for _ in range(3))
    wanted = contents_of(tensors, read)
    read.finish()

    def write(descriptor: int) -> None:
        write_all(descriptor, counted(pieces, written))
        written.finish()
        data = view_of(descriptor)
        convert.refuse_errors(shown(out), data, options)
        if contents_of(any_format.describe(data, options).tensors, again) != wanted:
            raise CheckError(f"{shown(out)}: the tensors would change")
        again.finish()

    write_output(out, write)
