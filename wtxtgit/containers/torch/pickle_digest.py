"""A hash of what a pickle says, whatever its opcodes and the keys of its storages.

Two pickles have the same one where they make the same value out of the same
parts: texts and numbers by what they are, everything else by its place in the
value and by where it is met again. Storages count by the order in which they
are named; where they were on a device has no part in it.
Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from wtxtgit.containers.torch.pickle_machine import FLOAT
from wtxtgit.containers.torch.pickle_values import (
    Dict,
    Global,
    List,
    LongInteger,
    Made,
    Pickle,
    Set,
)
from wtxtgit.containers.torch.views import Storage
from wtxtgit.io.view import Buffer

FLUSH = 1 << 16
"""Bytes that are gathered before they are hashed."""
_NUMBER = 8
"""Bytes of a count or a number."""


def digest(pickle: Pickle, content: Callable[[], Buffer]) -> bytes:
    """The SHA-256 of the value of a pickle; `content` gives its bytes.

    Those count as well where they hold an integer that was passed over.
    """
    walk = _Walk()
    walk.run(pickle.root)
    if walk.has_unknown:
        walk.add(b"*", sha256(content()).digest())
    return walk.finish()


class _Walk:
    """One walk over a value, each object of it once, in the order of the pickle."""

    def __init__(self) -> None:
        self.has_unknown = False
        self.hash = sha256()
        self.held = bytearray()
        self.left: list[object] = []
        self.met: dict[int, int] = {}
        self.texts: dict[int, int] = {}
        self.equal_texts: dict[str | bytes, int] = {}
        self.keys: dict[str, int] = {}

    def run(self, root: object) -> None:
        self.left.append(root)
        while self.left:
            self._value(self.left.pop())

    def add(self, word: bytes, *parts: bytes | int) -> None:
        self.held += word
        for part in parts:
            self.held += part.to_bytes(_NUMBER, "little") if isinstance(part, int) else part
        if len(self.held) >= FLUSH:
            self.hash.update(self.held)
            self.held.clear()

    def finish(self) -> bytes:
        self.hash.update(self.held)
        return self.hash.digest()

    def _value(self, value: object) -> None:
        match value:
            case None:
                self.add(b"N")
            case bool():
                self.add(b"T" if value else b"F")
            case int():
                raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
                self.add(b"i", len(raw), raw)
            case float():
                self.add(b"f", FLOAT.pack(value))
            case str() | bytes():
                self._text(value)
            case Storage():
                self._storage(value)
            case Global():
                self.add(b"g")
                self.left += (value.name, value.module)
            case ():
                self.add(b"t", 0)
            case _:
                self._object(value)

    def _text(self, text: str | bytes) -> None:
        """A text in full where it is met first; any number of places may refer to it."""
        number = self.texts.get(id(text))
        if number is None:
            number = self.equal_texts.setdefault(text, len(self.equal_texts))
            self.texts[id(text)] = number
            if number == len(self.equal_texts) - 1:
                raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
                self.add(b"b" if isinstance(text, bytes) else b"s", len(raw), raw)
                return
        self.add(b"=", number)

    def _storage(self, storage: Storage) -> None:
        key = self.keys.setdefault(storage.key, len(self.keys))
        part = storage.part or ()
        self.add(b"P", key, storage.numel, len(part), *part)
        self.left.append(storage.dtype)

    def _object(self, value: object) -> None:
        if id(value) in self.met:
            self.add(b"@", self.met[id(value)])
            return
        self.met[id(value)] = len(self.met)
        match value:
            case tuple():
                self._children(b"t", value)
            case List():
                self._children(b"l", value.items)
            case Set():
                self._children(b"e", value.items)
            case Dict():
                self._children(b"d", _flat(value.pairs))
            case Made():
                self.add(b"m", len(value.states), len(value.items))
                pairs = _flat(value.pairs)
                children = (
                    value.callee,
                    value.args,
                    value.kwargs,
                    *value.states,
                    *value.items,
                    *pairs,
                )
                self._children(b"c", children)
            case LongInteger():
                self.has_unknown = True
                self.add(b"n", value.nbytes)
            case _:
                self.has_unknown = True
                self.add(b"?")

    def _children(self, word: bytes, children: list[object] | tuple[object, ...]) -> None:
        self.add(word, len(children))
        self.left += reversed(children)


def _flat(pairs: list[tuple[object, object]]) -> list[object]:
    return [value for pair in pairs for value in pair]
