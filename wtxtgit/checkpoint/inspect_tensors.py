"""Inspecting some tensors of a checkpoint, of which only these and the structure are read."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from wtxtgit.checkpoint.contents import opened_lazily
from wtxtgit.checkpoint.inspect import largest, tensor_facts
from wtxtgit.checkpoint.open import read_checkpoint, shown_name
from wtxtgit.containers import any_format
from wtxtgit.errors import InputError, UsageError
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.model.array import NATIVE_FORMAT
from wtxtgit.model.tensor import ReadOptions, Tensor
from wtxtgit.report.inspect import Inspection
from wtxtgit.text.index import want_payload
from wtxtgit.text.layout import placed
from wtxtgit.trust.age.armor import is_age


def inspect_tensors(
    name: str,
    options: ReadOptions,
    only: Collection[str],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    pictured: int = 0,
) -> Inspection:
    """Inspect the tensors of a target with these names, or in these arrays of a text.

    Of a text the blocks that are read are checked; of a detached text only these are fetched.
    Raises as `inspect` does, CheckError if what is read of a text is damaged, and UsageError for an
    unknown name.
    """
    data = read_checkpoint(name, threads=threads)
    if is_age(data):
        raise InputError(f"{shown_name(name)}: is encrypted", hint="wtxtgit decrypt decrypts it")
    with opened_lazily(name, data, options, threads=threads, pages=Pages(progress)) as checkpoint:
        text = checkpoint.text
        arrays = _arrays_of(data) if text is None else {}

        def array_of(tensor: Tensor) -> str | None:
            if text is None or tensor.offset is None:
                return arrays.get((tensor.offset, tensor.name))
            place = text.array_at(tensor.offset, tensor.nbytes)
            return None if place is None else place[0]

        called = [(tensor, array_of(tensor)) for tensor in checkpoint.tensors]
        chosen = [one for one in called if not {one[0].name, one[1]}.isdisjoint(only)]
        missing = set(only).difference(*((tensor.name, array) for tensor, array in chosen))
        if missing:
            raise UsageError(
                f"{shown_name(name)}: no tensor is named {min(missing)!a}",
                hint=f"wtxtgit inspect {shlex.quote(shown_name(name))} lists all",
            )
        if text is not None:
            held = [text.by_name[array] for _, array in chosen if array is not None]
            want_payload(held)
        facts = []
        drawn = largest([tensor for tensor, _ in chosen], pictured)
        for number, (tensor, array) in enumerate(chosen):
            checkpoint.prepare(tensor)
            told = tensor_facts(
                tensor, checkpoint.budget, array, progress, is_pictured=number in drawn
            )
            facts.append(told)
        layout = any_format.split(data).layout if text is None else text.layout
        return Inspection(
            name,
            checkpoint.format,
            len(data) if text is None or not text.is_container else text.size,
            NATIVE_FORMAT if layout is None else layout.format,
            tensors=tuple(facts),
            metadata=checkpoint.metadata,
            notes=checkpoint.notes,
        )


def _arrays_of(data: ByteView) -> dict[tuple[int | None, str | None], str | None]:
    """Return the arrays that clean makes of a file's tensors, by offset and name of the tensor."""
    cut = any_format.split(data)
    sizes = {array.name: array.data.nbytes for array in cut.arrays}
    return {
        (start, extent.name): extent.array
        for start, extent in placed(cut.layout, sizes)
        if extent.is_tensor
    }
