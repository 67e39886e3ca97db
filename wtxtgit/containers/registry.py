"""Which container formats there are, and which of them a file claims to be.

Detection looks at magic bytes alone, and at the names of a zip's members: a
file that has a format's magic and breaks its rules is opaque, and is not
tried as another format.
Spec: `docs/spec/containers.md`, "Order of detection".
"""

from __future__ import annotations

from collections.abc import Sequence

from wtxtgit.containers import aero, fold, gguf, mlcp, npy, npz, safetensors, taridx, torch
from wtxtgit.containers.format import Format, Opening
from wtxtgit.io.view import ByteView

# `model.array.CONTAINER_FORMATS` has the same names in the order of the spec: what reads a text
# must know them without loading a format, and `text` may not import this room. A test holds the
# two against each other.
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
"""All formats, in order of detection."""
OPAQUE = "opaque"
"""What is said of a file of none of them."""

_HEAD = 64
"""Bytes in which the index of a set starts."""
_INDEX_STARTS = (b"{", torch.PICKLE_MAGIC)


def by_name(name: str) -> Format | None:
    """The format of this name, or with sets of this name."""
    return next((f for f in FORMATS if name in {f.name, f.set_name or f.name}), None)


def by_ending(ending: str) -> Format | None:
    """The format whose files' names end so."""
    return next((f for f in FORMATS if ending.lower() in f.endings), None)


def set_names() -> tuple[str, ...]:
    """What the sets of all formats are called."""
    return tuple(f.set_name for f in FORMATS if f.read_set is not None)


def index_endings() -> tuple[str, ...]:
    """How the names of the indexes of all formats' sets end."""
    return tuple(ending for f in FORMATS for ending in f.index_endings)


def hashing_indexes() -> tuple[str, ...]:
    """How the names of indexes end that have hashes of their files."""
    return tuple(end for f in FORMATS if f.reseal_set is not None for end in f.index_endings)


def endings_with_parts(names: Sequence[str]) -> tuple[str, ...]:
    """How the names of indexes end of which, among files' names, there are parts.

    Of indexes whose parts are files that others have, too, nothing is asked.
    """
    return tuple(
        ending
        for f in FORMATS
        if not f.part_endings or any(name.endswith(f.part_endings) for name in names)
        for ending in f.index_endings
    )


def part_note(name: str) -> str | None:
    """What to say of a file that its set's index alone tells how to read; None of any other."""
    known = next((f for f in FORMATS if f.part_endings and name.endswith(f.part_endings)), None)
    if known is None:
        return None
    index = " or ".join(known.index_endings)
    return f"a shard of a {known.set_name} checkpoint, which {index} in its folder describes"


def index_made(names: Sequence[str]) -> ByteView | None:
    """An index of the files in a folder that has none, where their names tell; None elsewhere.

    Raises InputError where they tell several sets.
    """
    made = (f.make_index().make_index(names) for f in FORMATS if f.make_index is not None)
    return next((index for index in made if index is not None), None)


def detected(data: ByteView) -> Format | None:
    """The format that the file's first bytes claim, None where they claim none."""
    opening = Opening(data)
    for f in FORMATS:
        # The first that claims a file has it: a file that breaks its rules is opaque.
        if opening.head.startswith(f.magic) and (f.claims is None or f.claims(opening)):
            return f
    return None


def detect(data: ByteView) -> str:
    """The name of the format that the file's first bytes claim, "opaque" where they claim none."""
    known = detected(data)
    return OPAQUE if known is None else known.name


def listed_by(data: ByteView) -> Format | None:
    """The format of whose sets a file is an index."""
    # Most files are no JSON and no pickle: those are told before a module for sets is loaded.
    if bytes(data[:_HEAD]).lstrip()[:1] not in _INDEX_STARTS or detected(data) is not None:
        return None
    with_sets = (f for f in FORMATS if f.read_set is not None)
    return next((f for f in with_sets if f.read_set and f.read_set().is_index(data)), None)


def stored_whole(data: ByteView) -> Format | None:
    """The format of which a file is that is no container, but known: such files are not cut."""
    for f in FORMATS:
        if f.whole is not None and data[: len(f.whole_magic)] == f.whole_magic:
            return f if f.whole().claims(data) else None
    return None


def refusal(data: ByteView) -> str | None:
    """Why a file is not read, where it has a magic that is refused by its name."""
    for f in FORMATS:
        for magic, reason in (f.refused or {}).items():
            if data[: len(magic)] == magic:
                return reason
    return None
