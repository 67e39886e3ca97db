"""JSON, MessagePack and Python literals with changed values, spelled in other ways."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from functools import lru_cache

import msgpack

from tests.fuzz.mutations import bytes_mutant, text_mutant
from tests.fuzz.trees import Map, Pair, Raw, Tree, Tuple, mutated, tree_of

_quoted = json.JSONEncoder(ensure_ascii=False).encode
RAW_JSON = (b"", b"01", b"+1", b"1e999", b"-", b"1E400", b"'a'", b"nul", b"[1,]", b"{", b"]", b",")
RAW_MSGPACK = (
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc1"),
    *(b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xdd\x7f\xff\xff\xff", b""),
    *(b"\xd6\xff\0\0\0\0", b"\xc7\x0c\xff" + bytes(12), b"\xd8\x01" + bytes(16), b"\xdc\x00\x05"),
)
RAW_LITERAL = (b"", b"None", b"1L", b"07", b"b'a'", b"1.5", b"lambda: 0", b"'\\ud800'", b"{,}")


def json_text(data: bytes, rng: random.Random) -> bytes:
    """A JSON text with its value changed; with its bytes changed where it is none."""
    try:
        return json_mutant(json.loads(data), rng)
    except (ValueError, RecursionError):
        return text_mutant(data, rng) if data else b"{}"


def msgpack_text(data: bytes, rng: random.Random) -> bytes:
    """MessagePack with its value changed; with its bytes changed where it is none."""
    try:
        value = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError):
        return bytes_mutant(data, rng)
    return msgpack_mutant(value, rng)


def json_mutant(value: object, rng: random.Random) -> bytes:
    """A JSON text of a value, with some of it changed."""
    return _Json(rng).text(mutated(tree_of(value), rng, RAW_JSON))


def msgpack_mutant(value: object, rng: random.Random) -> bytes:
    """MessagePack of a value, with some of it changed."""
    return _Msgpack(rng).packed(mutated(tree_of(value), rng, RAW_MSGPACK))


def literal_mutant(value: object, rng: random.Random) -> bytes:
    """A Python literal of a value, with some of it changed."""
    return _Literal(rng).text(mutated(tree_of(value), rng, RAW_LITERAL))


def _pairs(tree: Map) -> Iterator[tuple[Tree, Tree]]:
    for pair in tree:
        assert isinstance(pair, Pair)
        yield pair[0], pair[1]


class _Json:
    """One way to spell JSON, where all values have the same value again."""

    def __init__(self, rng: random.Random) -> None:
        self._blank = rng.choice(("", "", "", " ", "\n", "\t \r\n"))
        self._is_plain = rng.random() < 0.7
        self._rng = rng

    def text(self, tree: Tree) -> bytes:
        return self._spell(tree) + self._rng.choice(("", "", "", " ", "\0", "x")).encode()

    def _spell(self, tree: Tree) -> bytes:
        if isinstance(tree, str):
            return self._string(tree)
        blank = self._blank.encode()
        if isinstance(tree, Raw):
            return tree.content
        if isinstance(tree, Map):
            colon = b":" + blank
            pairs = [self._key(key) + colon + self._spell(held) for key, held in _pairs(tree)]
            return b"{" + blank + (b"," + blank).join(pairs) + blank + b"}"
        if isinstance(tree, list):
            return b"[" + (b"," + blank).join(self._spell(item) for item in tree) + b"]"
        if isinstance(tree, bytes):
            return self._string(tree.hex())
        if isinstance(tree, int) and not isinstance(tree, bool) and not self._is_plain:
            return self._rng.choice((b"%d", b"%d", b"%d.0", b"%de0", b"0%d")) % tree
        return json.dumps(tree).encode()

    def _key(self, key: Tree) -> bytes:
        spelled = self._spell(key)
        return spelled if spelled.startswith(b'"') else self._string(spelled.decode("latin-1"))

    def _string(self, text: str) -> bytes:
        if self._is_plain:
            return _quoted(text).encode(errors="surrogatepass")
        return _escaped(text)


@lru_cache(maxsize=4096)
def _escaped(text: str) -> bytes:
    """A JSON string of escapes alone, as far as one escape can say a character."""
    escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text)
    return b'"' + escaped.encode() + b'"'


class _Msgpack:
    """MessagePack in which each value may be wider than it has to be."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._is_wide = rng.random() < 0.3

    def packed(self, tree: Tree) -> bytes:
        return self._pack(tree) + self._rng.choice((b"", b"", b"", b"\0", b"\xc1"))

    def _pack(self, tree: Tree) -> bytes:
        if isinstance(tree, Raw):
            return tree.content
        if isinstance(tree, Map):
            inner = b"".join(self._pack(key) + self._pack(held) for key, held in _pairs(tree))
            return self._head(len(tree), 0x80, 16, (0, 0xDE, 0xDF)) + inner
        if isinstance(tree, list):
            inner = b"".join(map(self._pack, tree))
            return self._head(len(tree), 0x90, 16, (0, 0xDC, 0xDD)) + inner
        if isinstance(tree, str):
            raw = tree.encode(errors="surrogatepass")
            return self._head(len(raw), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + raw
        if isinstance(tree, bytes):
            return self._head(len(tree), 0, 0, (0xC4, 0xC5, 0xC6)) + tree
        if isinstance(tree, float):
            return b"\xcb" + struct.pack(">d", tree)
        if isinstance(tree, bool) or tree is None:
            return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[tree]
        assert isinstance(tree, int)
        return self._integer(tree)

    def _integer(self, value: int) -> bytes:
        if 0 <= value < 128 and not self._is_wide:
            return bytes([value])
        if 0 <= value < 2**64:
            return b"\xcf" + value.to_bytes(8, "big")
        return b"\xd3" + (value % 2**64).to_bytes(8, "big")

    def _head(self, count: int, fixed: int, below: int, codes: tuple[int, ...]) -> bytes:
        if count < below and not self._is_wide:
            return bytes([fixed | count])
        widths = [w for w in (1, 2, 4) if codes[w.bit_length() - 1] and count < 256**w]
        width = self._rng.choice(widths) if self._is_wide else widths[0]
        return bytes([codes[width.bit_length() - 1]]) + count.to_bytes(width, "big")


class _Literal:
    """One way to spell a Python literal."""

    def __init__(self, rng: random.Random) -> None:
        self._quote = rng.choice("''\"")
        self._comma = rng.choice((", ", ", ", ",", " ,\n"))
        self._rng = rng

    def text(self, tree: Tree) -> bytes:
        return self._spell(tree) + self._rng.choice((b"", b" ", b"\n", b",", b"x", b"\0"))

    def _spell(self, tree: Tree) -> bytes:
        comma = self._comma.encode()
        if isinstance(tree, Raw):
            return tree.content
        if isinstance(tree, Map):
            inner = [self._spell(key) + b": " + self._spell(held) for key, held in _pairs(tree)]
            return b"{" + comma.join(inner) + b"}"
        if isinstance(tree, list):
            inner = [self._spell(item) for item in tree]
            if isinstance(tree, Tuple):
                return b"(" + comma.join(inner) + (b",)" if len(inner) == 1 else b")")
            return b"[" + comma.join(inner) + b"]"
        if isinstance(tree, str) and self._quote not in tree and tree.isprintable():
            escaped = tree.replace("\\", "\\\\")
            return f"{self._quote}{escaped}{self._quote}".encode("latin-1", "replace")
        return ascii(tree).encode()
