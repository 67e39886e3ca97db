"""Quantised tensors when converting: as the other format's own types, or as bytes with a tag.

A format without quantised types gets a tensor of u8, whose rows are the stored ones, and a tag
`wtxtgit.packed:NAME` that states their type; converting back restores it. Spec:
`docs/spec/containers.md`, "Packed tensors".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wtxtgit.containers.format import Format
from wtxtgit.errors import MAX_NAME, clipped
from wtxtgit.model.ggml import PREFIX, QUANTISED, item_shape, stored_shape
from wtxtgit.model.tensor import TensorSource

TAG = "wtxtgit.packed:"
"""The start of a tag's key, which the tensor's name follows; the value is its element."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Tensors as a format holds them, with tags; `unfit` are messages about the others."""

    sources: list[TensorSource]
    tags: dict[str, str]
    unfit: list[str]
    notes: list[str]


def unpacked(
    target: Format, sources: Iterable[TensorSource], tags: Mapping[str, str]
) -> tuple[list[TensorSource], dict[str, str]]:
    """Return the tensors with the types that tags state for their bytes, and all other tags.

    They stay bytes if the target format could not state that again.
    """
    left = dict(tags)
    if not target.holds_quantised and target.keeps_tag is None:
        return list(sources), left
    found = []
    for source in sources:
        element = left.get(TAG + source.name, "")
        kind = QUANTISED.get(element)
        shape = None if kind is None else item_shape(kind[1], source.shape)
        if shape is not None and source.element == "u8":
            del left[TAG + source.name]
            found.append(replace(source, element=element, shape=shape))
        else:
            found.append(source)
    return found, left


def fitted(target: Format, sources: Sequence[TensorSource], tags: Mapping[str, str]) -> Fitted:
    """Return the tensors as a format can hold them; numbers are unchanged if it has their dtype."""
    dtypes = target.write().DTYPES if target.write is not None else {}
    done = Fitted([], dict(tags), [], [])
    for source in sources:
        kind = QUANTISED.get(source.element)
        tag = TAG + source.name
        if source.element in dtypes or (kind is not None and target.holds_quantised):
            done.sources.append(source)
        elif kind is None:
            done.unfit.append(_unfit(source, f"is {source.element}, for which it has no dtype"))
        elif "u8" in dtypes and target.keeps_tag is not None and target.keeps_tag(tag):
            done.sources.append(as_bytes(source))
            done.tags[tag] = source.element
            done.notes.append(f"{_unfit(source, f'is {_word(source)}')}, whose blocks are u8 items")
        else:
            done.unfit.append(_unfit(source, f"is {_word(source)}, for which it has no place"))
    return done


def as_bytes(source: TensorSource) -> TensorSource:
    """Return a quantised tensor as rows of bytes."""
    _, ggml_type = QUANTISED[source.element]
    shape = stored_shape(ggml_type, source.shape)
    return source if shape is None else replace(source, element="u8", shape=shape)


def _unfit(source: TensorSource, why: str) -> str:
    return f"tensor {clipped(source.name, MAX_NAME)!a} {why}"


def _word(source: TensorSource) -> str:
    return source.element.removeprefix(PREFIX)
