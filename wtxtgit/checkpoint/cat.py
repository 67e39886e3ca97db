"""Cat: parts of a checkpoint by name: tensors, other parts, arrays of its text, metadata."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path

from wtxtgit.checkpoint import convert
from wtxtgit.checkpoint.contents import Checkpoint, opened_lazily
from wtxtgit.checkpoint.convert import quoted
from wtxtgit.checkpoint.open import read_checkpoint, shown_name
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import MAX_NAME, FormatError, InputError, UsageError, clipped
from wtxtgit.io.files import named
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView, Pages, pieces
from wtxtgit.model.named_arrays import near_names
from wtxtgit.model.tensor import NamedPart, ReadOptions, Tensor
from wtxtgit.tensors import tensor_bytes
from wtxtgit.text.layout import placed
from wtxtgit.trust.age.armor import is_age

_NUMBERED = re.compile(r"(.+)__([1-9][0-9]{0,8})", re.DOTALL)
_place = attrgetter("offset")


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """Something with a name: a tensor, bytes that `blocks` yields, or a value of the metadata.

    `value` counts where `is_value`: JSON has a null.
    """

    name: str
    blocks: Callable[[], Iterator[Buffer]]
    tensor: Tensor | None = None
    value: object = None
    is_value: bool = False


@contextmanager
def opened(
    target: str,
    names: Sequence[str],
    options: ReadOptions,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Iterator[list[Named]]:
    """Find what has these names in a target; a context manager that keeps the target open.

    A name is looked for among the tensors, then among the format's chunks, members and values, then
    among the arrays of a text. After that, NAME__2 is the second of several things named NAME, and
    last come the keys of the metadata. Only the parts of a text that are asked for are decoded, and
    only those of a detached text are fetched. Raises UsageError if a name is unknown or ambiguous,
    CheckError for a damaged text, and InputError and EnvironmentFailure.
    """
    data = read_checkpoint(target, threads=threads)
    if is_age(data):
        raise InputError(f"{shown_name(target)}: is encrypted", hint="wtxtgit decrypt decrypts it")
    pages = Pages(progress)
    with opened_lazily(target, data, options, threads=threads, pages=pages) as checkpoint:
        finder = _Finder(target, data, checkpoint, options)
        yield [finder.find(name) for name in dict.fromkeys(names)]


def write_tensors(
    out: Path, found: Sequence[Named], options: ReadOptions, progress: Progress | None = None
) -> None:
    """Write tensors as a file of the format that its ending names.

    `progress` gets counts of their bytes, as they are read, written, and read again. Raises as
    `convert` does, and UsageError for anything but a tensor.
    """
    sources = []
    for one in found:
        tensor = one.tensor
        if tensor is None:
            raise UsageError(f"{quoted(one.name)} is not a tensor", hint="-o - writes its bytes")
        sources.append(convert.source_of(str(out), tensor))
    convert.write_tensors(out, sources, {}, options, progress=progress)


class _Finder:
    """Finds things by name in one checkpoint."""

    def __init__(
        self, target: str, data: ByteView, checkpoint: Checkpoint, options: ReadOptions
    ) -> None:
        self._target = shown_name(target)
        self._data = data
        self._checkpoint = checkpoint
        text = checkpoint.text
        self._file = data
        if text is not None:
            self._file = text.view if text.is_container else data[:0]
        self._parts = list(_parts(self._file, options))

    def find(self, name: str) -> Named:
        """Return what has this name; raises UsageError if nothing has, or several things have."""
        there = self._called(name)
        if len(there) > 1:
            first = shlex.quote(clipped(f"{name}__1", MAX_NAME))
            raise UsageError(
                f"{self._target}: {len(there)} parts are named {quoted(name)}",
                hint=f"wtxtgit inspect --parts {shlex.quote(self._target)} shows them in their "
                f"order; {first} names the first",
            )
        if there:
            return self._one(name, there[0])
        array = self._arrays().get(name)
        if array is not None:
            return self._array(name, *array)
        of_several = self._numbered(name)
        if of_several is not None:
            return self._one(name, of_several)
        values = list(self._values(name))
        if len(values) == 1:
            return Named(name, lambda: iter(()), value=values[0], is_value=True)
        raise UsageError(f"{self._target}: no part is named {quoted(name)}", hint=self._hint(name))

    def _called(self, name: str) -> Sequence[Tensor | NamedPart]:
        """Return the tensors with this name, or else the parts, in the order of the file."""
        tensors = [tensor for tensor in self._checkpoint.tensors if tensor.name == name]
        if tensors:
            # Tensors that are compressed together have no offset of their own, and keep their
            # order.
            return sorted(tensors, key=lambda one: one.offset or 0)
        return sorted((part for part in self._parts if part.name == name), key=_place)

    def _numbered(self, name: str) -> Tensor | NamedPart | None:
        """Find NAME__2, the second of several things named NAME, as arrays of texts are named.

        Returns None if the name has no number, or there are not that many.
        """
        called = _NUMBERED.fullmatch(name)
        if called is None:
            return None
        there, n = self._called(called[1]), int(called[2])
        return there[n - 1] if 1 < len(there) >= n else None

    def _one(self, name: str, what: Tensor | NamedPart) -> Named:
        if isinstance(what, Tensor):
            return self._tensor(name, what)
        return Named(name, partial(self._named, self._of_part, what))

    def _tensor(self, name: str, tensor: Tensor) -> Named:
        # The budget counts all tensors together.
        reason = tensor.absent or self._checkpoint.budget.refusal(tensor)
        if reason is not None:
            raise InputError.because(f"{self._target}: tensor {quoted(name)}: {reason}", reason)
        self._checkpoint.prepare(tensor)
        # Without the padding that some writers count in.
        tensor = tensor_bytes.as_numbers(tensor) or tensor
        return Named(name, partial(self._named, tensor_bytes.blocks, tensor), tensor)

    def _array(self, name: str, start: int, nbytes: int) -> Named:
        for tensor in self._checkpoint.tensors:
            if (tensor.offset, tensor.nbytes) == (start, nbytes) and nbytes:
                return self._tensor(tensor.name, tensor)
        part = NamedPart(name, start, nbytes, lambda: pieces(self._file[start : start + nbytes]))
        return Named(name, partial(self._named, self._of_part, part))

    def _of_part(self, part: NamedPart) -> Iterator[Buffer]:
        if self._checkpoint.text is not None:
            self._checkpoint.text.fill_range(part.offset, part.nbytes)
        return part.blocks()

    def _named(
        self, blocks: Callable[..., Iterable[Buffer]], what: Tensor | NamedPart
    ) -> Iterator[Buffer]:
        with named(self._target):
            yield from blocks(what)

    def _arrays(self) -> dict[str, tuple[int, int]]:
        """Return where the arrays of a file's text stand in the file: start and size."""
        text = self._checkpoint.text
        if text is not None:
            sizes = {name: array.nbytes for name, array in text.by_name.items()}
            return {name: (start, sizes[name]) for name, start in text.places.items()}
        cut = any_format.split(self._data)
        sizes = {array.name: array.data.nbytes for array in cut.arrays}
        return {
            extent.array: (start, sizes[extent.array])
            for start, extent in placed(cut.layout, sizes)
            if extent.array is not None
        }

    def _values(self, name: str) -> Iterator[object]:
        """Yield values of the metadata with this key, at the top or one level below."""
        metadata = self._checkpoint.metadata
        if name in metadata:
            yield metadata[name]
            return
        for value in metadata.values():
            if isinstance(value, dict) and name in value:
                yield value[name]

    def _hint(self, name: str) -> str:
        there = dict.fromkeys(
            chain(
                (tensor.name for tensor in self._checkpoint.tensors),
                (part.name for part in self._parts),
                self._checkpoint.metadata,
            )
        )
        lists = f"wtxtgit inspect {shlex.quote(self._target)} lists all"
        near = ", ".join(near_names(name, there))
        return f"did you mean {near}? {lists}" if near else lists


def _parts(data: ByteView, options: ReadOptions) -> Iterator[NamedPart]:
    known = registry.detected(data)
    if known is None or known.parts is None:
        return
    try:
        yield from known.parts().named_parts(any_format.read(data), options)
    except FormatError:
        # An incomplete file, of which everything that exists has been yielded.
        return
