"""Which container formats there are, and which of them a file claims to be.

Detection uses only magic bytes, and the names of a zip's members: a file that has a format's magic
but breaks its rules is opaque, and is not tried as another format. Spec:
`docs/spec/containers.md`, "Order of detection".
"""

from __future__ import annotations

from collections.abc import Sequence

from wtxtgit.containers import aero, fold, gguf, mlcp, npy, npz, safetensors, taridx, torch
from wtxtgit.containers.format import Format, Opening
from wtxtgit.io.view import ByteView

# `model.array.CONTAINER_FORMATS` has the same names in the order of the spec: readers of texts
# must know them without loading a format, and `text` may not import this room. A test compares
# the two.
FORMATS: tuple[Format, ...] = (
    fold.FORMAT,
    aero.FORMAT,
    mlcp.FORMAT,
    taridx.FORMAT,
    gguf.FORMAT,
    npy.FORMAT,
    torch.FORMAT,
    npz.FORMAT,
    safetensors.FORMAT,
)
"""All formats, in the order of detection."""
OPAQUE = "opaque"
"""What a file of an unknown format is called."""

_HEAD = 64
"""The index of a set is recognised by this many bytes."""
_INDEX_STARTS = (b"{", torch.PICKLE_MAGIC)


def by_name(name: str) -> Format | None:
    """Return the format with this name, or with sets of this name."""
    return next((f for f in FORMATS if name in {f.name, f.set_name or f.name}), None)


def by_ending(ending: str) -> Format | None:
    """Return the format whose file names have this ending."""
    return next((f for f in FORMATS if ending.lower() in f.endings), None)


def set_names() -> tuple[str, ...]:
    """Return the names of the sets of all formats."""
    return tuple(f.set_name for f in FORMATS if f.read_set is not None)


def index_endings() -> tuple[str, ...]:
    """Return the endings of the index names of all formats' sets."""
    return tuple(ending for f in FORMATS for ending in f.index_endings)


def hashing_indexes() -> tuple[str, ...]:
    """Return the endings of those indexes that contain hashes of their files."""
    return tuple(end for f in FORMATS if f.reseal_set is not None for end in f.index_endings)


def of_hashed_set(name: str) -> Format | None:
    """Return the format whose sets have hashes of their files, if a file is named as one of such
    a set; else None.
    """
    return next(
        (
            f
            for f in FORMATS
            if f.reseal_set is not None and name.endswith((*f.index_endings, *f.endings))
        ),
        None,
    )


def endings_with_parts(names: Sequence[str]) -> tuple[str, ...]:
    """Return the endings of indexes that may have parts among these file names.

    Formats whose parts are named like other files always count.
    """
    return tuple(
        ending
        for f in FORMATS
        if not f.part_endings or any(name.endswith(f.part_endings) for name in names)
        for ending in f.index_endings
    )


def part_note(name: str) -> str | None:
    """Return a note on a file that can be read only through its set's index; else None."""
    known = next((f for f in FORMATS if f.part_endings and name.endswith(f.part_endings)), None)
    if known is None:
        return None
    index = " or ".join(known.index_endings)
    return f"a shard of a {known.set_name} checkpoint, which {index} in its folder describes"


def index_made(names: Sequence[str]) -> ByteView | None:
    """Make an index for a folder without one, if its file names show a set; None if they don't.

    Raises InputError if the names make up several sets.
    """
    indexes = (f.make_index().make_index(names) for f in FORMATS if f.make_index is not None)
    return next((index for index in indexes if index is not None), None)


def detected(data: ByteView) -> Format | None:
    """Return the format that the file's first bytes claim, None if they claim none."""
    opening = Opening(data)
    for f in FORMATS:
        # The first format that claims a file gets it: a file that breaks its rules is opaque.
        if opening.head.startswith(f.magic) and (f.claims is None or f.claims(opening)):
            return f
    return None


def detect(data: ByteView) -> str:
    """Return the name of the format that the first bytes claim, "opaque" if they claim none."""
    known = detected(data)
    return OPAQUE if known is None else known.name


def listed_by(data: ByteView) -> Format | None:
    """Return the format of whose sets a file is an index, None if it is none."""
    # Most files are neither JSON nor pickles: check that before loading a module for sets.
    if bytes(data[:_HEAD]).lstrip()[:1] not in _INDEX_STARTS or detected(data) is not None:
        return None
    with_sets = (f for f in FORMATS if f.read_set is not None)
    return next((f for f in with_sets if f.read_set and f.read_set().is_index(data)), None)


def stored_whole(data: ByteView) -> Format | None:
    """Return the format of a file that is recognised but not cut, None if it is no such file."""
    for f in FORMATS:
        if f.whole is not None and data[: len(f.whole_magic)] == f.whole_magic:
            return f if f.whole().claims(data) else None
    return None


def refusal(data: ByteView) -> str | None:
    """Return why a file is not read, if it has the magic of a format that is refused by name."""
    for f in FORMATS:
        for magic, reason in (f.refused or {}).items():
            if data[: len(magic)] == magic:
                return reason
    return None
