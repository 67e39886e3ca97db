"""What a container file holds by name, and how it is written anew with some of it changed.

Plain data; which entries a file has and how it is written is for each
format's `reseal` in `containers` to know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.reading import Packed, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Something that a file holds under a name: a tensor, or a file in a chunk or a member.

    Exactly one of `tensor` and `file` is set, but for a file that can't be
    opened (encrypted, damaged): it has neither, and `unread` says why. `file`
    is the content, decoded. `stored` are the bytes as they lie in the
    container, None where they lie within something compressed: entries of
    equal `form` and `stored` hold the same. `form` is all else that the
    container's record of the entry says: dtype, order, compression, further
    keys; no name, no place, no length, no hash.
    """

    name: str
    form: Hashable
    stored: ByteView | None
    tensor: Tensor | None = None
    file: ByteView | Packed | None = None
    unread: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """New bytes of an entry, `nbytes` of them; `blocks` gives them each time it is called."""

    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """An entry of a file that is written: entry `number` of a file that was read.

    `source` is that file as its format's `read` gave it. Without `content` the
    entry is taken as it is stored there. `content` of a tensor has exactly as
    many bytes as are stored, in their order and byte order; that of a file
    any number, not compressed.
    """

    source: object
    number: int
    content: Content | None = None
