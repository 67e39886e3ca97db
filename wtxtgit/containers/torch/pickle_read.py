"""Pickles from untrusted files: their opcodes, run without effect.

The opcodes are those of protocols 2 to 5; opcodes of protocols 0 and 1 that are lines of text,
extension codes and out-of-band buffers are refused. A global is only a name, a call is only
recorded; nothing is imported, called or unpickled. Each opcode costs constant time plus the time
for its bytes. The results are instances of our own classes, compared by identity: hashing or
comparing what a file contains could take unbounded time or depth. Spec: `docs/spec/torch.md`,
"Pickles"; Python's `pickletools`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Literal, NoReturn

from wtxtgit.containers.cursor import CONTAINER, TEXT, VALUE, ListingBudget, fail
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.io.view import ByteView, mapped

MAX_PROTOCOL = 5
# The most opcodes, and lists, dicts, tuples, sets, calls and marks, in one pickle: an opcode costs
# constant time, and those that make an object some memory.
MAX_OPCODES = 32 * MAX_TENSORS
MAX_CONTAINERS = 4 * MAX_TENSORS
# Longest integer in bytes: longer ones are useless, and printing them takes quadratic time.
MAX_INTEGER_BYTES = 255
# Longest module or name of a global in characters.
MAX_GLOBAL = 1024
# Longest line in bytes with a global's module or name: a character has up to four.
MAX_LINE = 4 * MAX_GLOBAL + 1
# Its end is first searched in this many bytes: names are short, and each search copies.
FIRST_LOOK = 64
# For a string of up to this many bytes, its characters are included in the count of its opcode.
LONG = 32
FLOAT = Struct(">d")
STOP = ord(".")
LATIN_1 = "latin1"
Load = Callable[[object, int], object]
"""Returns the object for a persistent id, read at that offset; raises FormatError."""


@dataclass(frozen=True, slots=True)
class Global:
    """The name of a class or function, which is never imported."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class LongInteger:
    """An integer of too many bytes to be used."""

    nbytes: int


@dataclass(slots=True, eq=False)
class List:
    """A list."""

    items: list[object] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Set:
    """A set or frozenset, items as written."""

    items: list[object] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Dict:
    """A dict, as pairs in the order written; the last value of a repeated key counts.

    `filled_at` is where the opcodes for its last pair end: there the dict is on top of the stack.
    """

    pairs: list[tuple[object, object]] = field(default_factory=list)
    filled_at: int = 0


@dataclass(slots=True, eq=False)
class CallResult:
    """What a call of `callee` with `args` would have returned, had it been made.

    `states` would have been passed to its `__setstate__`, `items` and `pairs` added to it as to a
    list or a dict; `filled_at` is as in a Dict.
    """

    callee: object
    args: tuple[object, ...]
    kwargs: object = None
    states: list[object] = field(default_factory=list)
    items: list[object] = field(default_factory=list)
    pairs: list[tuple[object, object]] = field(default_factory=list)
    filled_at: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Pickle:
    """A pickle that was read: the value, the globals that it names, where it ends.

    `is_encoded` says that a string of Python 2 is not UTF-8, so its encoding has to be known.
    """

    root: object
    protocol: int
    opcodes: frozenset[int]
    globals: tuple[Global, ...]
    end: int
    is_encoded: bool


ENCODE = Global("_codecs", "encode")
BYTES = (Global("__builtin__", "bytes"), Global("builtins", "bytes"))
"""How bytes are written in protocol 2: a text to be encoded, or a call without arguments."""


def parse(
    data: ByteView, what: str, load: Load, *, start: int = 0, listing: ListingBudget | None = None
) -> Pickle:
    """Read the pickle at data[start:]; bytes after it are ignored.

    `what` names the pickle in errors; its values count in the `listing` of the file. Raises
    FormatError (structure or limit).
    """
    listing = listing or ListingBudget(len(data) - start)
    return _PickleMachine(data[: start + MAX_JSON], what, load, start, listing).run()


class _PickleMachine:
    """The stack, the marks and the memo of one run."""

    def __init__(
        self, data: ByteView, what: str, load: Load, start: int, listing: ListingBudget
    ) -> None:
        # Mapped as a whole, since every opcode reads from it.
        self.data = mapped(data[start:])
        self.start = start
        self.size = len(data)
        self.what = what
        self.load = load
        self.listing = listing
        self.pos = self.at = start
        self.stack: list[object] = []
        self.marked: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.encoded: dict[int, tuple[str, bytes | None]] = {}
        self.globals: dict[tuple[str, str], Global] = {}
        self.opcodes = bytearray(256)
        self.containers = 0
        self.protocol = 0
        self.is_encoded = False

    def run(self) -> Pickle:
        data, start, size = self.data, self.start, self.size
        left = MAX_OPCODES
        while True:
            self.at = self.pos
            if self.pos >= size:
                self._fail("is cut short")
            # An opcode costs constant time, so their number bounds the time of the run.
            if left == 0:
                self._fail(f"has over {MAX_OPCODES} opcodes", kind="limit")
            left -= 1
            code = data[self.pos - start]
            self.pos += 1
            self.opcodes[code] = 1
            if code == STOP:
                break
            step = _STEPS.get(code)
            if step is None:
                self._fail(f"has opcode {bytes([code])!r}, which is not supported")
            # `count` inlined: a call for each opcode would cost as much as the opcode.
            self.listing.left -= _COUNTS[code]
            if self.listing.left < 0:
                self._count(0)
            step(self)
        # No writer leaves a mark open, and readers would differ in the resulting value.
        if self.marked:
            self._fail("stops with a mark still open")
        opcodes = frozenset(code for code in range(256) if self.opcodes[code])
        names = tuple(self.globals.values())
        return Pickle(self._pop(), self.protocol, opcodes, names, self.pos, self.is_encoded)

    def _fail(self, message: str, kind: str = "structure") -> NoReturn:
        fail(f"{self.what} {message}", offset=self.at, field=self.what, kind=kind)

    def _count(self, amount: int) -> None:
        """Count what an opcode makes in addition to the constant count of its kind."""
        self.listing.count(amount, self.at, self.what)

    def _count_container(self) -> None:
        self.containers += 1
        if self.containers > MAX_CONTAINERS:
            self._fail(f"has over {MAX_CONTAINERS} objects", kind="limit")

    # Arguments of opcodes.

    def _take(self, count: int) -> bytes:
        end = self.pos + count
        if end > self.size:
            self._fail("is cut short")
        if count > LONG:
            self._count(TEXT * count)
        raw = bytes(self.data[self.pos - self.start : end - self.start])
        self.pos = end
        return raw

    def _integer(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(width), "little", signed=signed)

    def _line(self) -> str:
        first = self.pos - self.start
        length = bytes(self.data[first : first + FIRST_LOOK]).find(b"\n")
        if length < 0:
            length = bytes(self.data[first : first + MAX_LINE]).find(b"\n")
        if length < 0:
            self._fail("has a global whose line does not end")
        line = self._text(length)
        self.pos += 1
        return line

    def _text(self, length: int) -> str:
        raw = self._take(length)
        try:
            # As Python writes it: lone surrogates are refused later if they name a tensor.
            text = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self._fail("has a string that is not UTF-8")
        # A Python string uses four bytes for each character if any needs them.
        if length > LONG and _BEYOND_LATIN.search(text):
            self._count(3 * length)
        return text

    # The stack.

    def _pop(self) -> object:
        if not self.stack:
            self._fail("takes more from the stack than is there")
        return self.stack.pop()

    def _top(self) -> object:
        if not self.stack:
            self._fail("takes more from the stack than is there")
        return self.stack[-1]

    def _pop_mark(self) -> list[object]:
        if not self.marked:
            self._fail("has no mark where one is expected")
        items, self.stack = self.stack, self.marked.pop()
        return items

    def _pop_args(self) -> tuple[object, ...]:
        args = self._pop()
        if not isinstance(args, tuple):
            self._fail("has a call without a tuple of arguments")
        return args

    def _push_container(self, value: object) -> None:
        self._count_container()
        self.stack.append(value)

    # Opcodes, each a step: protocol, marks and memo.

    def proto(self) -> None:
        self.protocol = self._integer(1)
        if self.protocol > MAX_PROTOCOL:
            self._fail(f"has protocol {self.protocol}, which is not supported")

    def frame(self) -> None:
        if self._integer(8) > self.size - self.pos:
            self._fail("has a frame that is cut short")

    def mark(self) -> None:
        self._count_container()
        self.marked.append(self.stack)
        self.stack = []

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            # Python's own reader also pops the mark if there is nothing above it.
            self._pop_mark()

    def dup(self) -> None:
        self.stack.append(self._top())

    def _put(self, index: int) -> None:
        self.memo[index] = self._top()

    def _get(self, index: int) -> None:
        if index not in self.memo:
            self._fail(f"reads memo entry {index}, which was never set")
        self.stack.append(self.memo[index])

    # Plain values.

    def binary_long(self, width: Literal[1, 4]) -> None:
        length = self._integer(width, signed=width > 1)
        if not 0 <= length <= self.size - self.pos:
            self._fail("is cut short")
        # Printing a longer one takes quadratic time, and no tensor needs one.
        if length <= MAX_INTEGER_BYTES:
            self.stack.append(self._integer(length, signed=True))
        else:
            self.pos += length
            self.stack.append(LongInteger(length))

    def binary_float(self) -> None:
        self.stack.append(FLOAT.unpack(self._take(FLOAT.size))[0])

    def string(self, width: int) -> None:
        """Push a string of Python 2, as text if it is UTF-8."""
        raw = self._take(self._integer(width))
        try:
            self.stack.append(raw.decode())
        except UnicodeDecodeError:
            self.is_encoded = True
            self.stack.append(raw)

    # Containers.

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            self._fail("takes more from the stack than is there")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self._push_container(items)

    def extend(self, kind: type[List | Set], items: list[object]) -> None:
        target = self._top()
        if not isinstance(target, (kind, CallResult)):
            self._fail(
                f"{'appends' if kind is List else 'adds'} to something that is not a "
                f"{kind.__name__.lower()}"
            )
        target.items.extend(items)

    def set_pairs(self, items: list[object]) -> None:
        target = self._top()
        if not isinstance(target, Dict | CallResult):
            self._fail("sets items of something that is not a dictionary")
        target.pairs.extend(self._pairs(items))
        target.filled_at = self.pos

    def _pairs(self, items: list[object]) -> list[tuple[object, object]]:
        if len(items) % 2:
            self._fail("has a key without a value")
        self._count((VALUE + CONTAINER) * (len(items) // 2))
        return list(zip(items[::2], items[1::2], strict=True))

    # Names and calls.

    def _push_global(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            self._fail("has a global whose name is not made of strings")
        if len(module) > MAX_GLOBAL or len(name) > MAX_GLOBAL:
            self._fail("has a global with too long a name", kind="limit")
        self.stack.append(self.globals.setdefault((module, name), Global(module, name)))

    def global_name(self) -> None:
        module = self._line()
        self._push_global(module, self._line())

    def stack_global(self) -> None:
        name = self._pop()
        self._push_global(self._pop(), name)

    def call(self) -> None:
        args = self._pop_args()
        callee = self._pop()
        encoded = self._encoded(callee, args)
        if encoded is None:
            self._push_container(CallResult(callee, args, filled_at=self.pos))
        else:
            self.stack.append(encoded)

    def _encoded(self, callee: object, args: tuple[object, ...]) -> bytes | None:
        """Return the bytes that a call denotes, None if it does not denote bytes."""
        if not isinstance(callee, Global):
            return None
        if not args:
            return b"" if callee in BYTES else None
        text = args[0]
        if callee != ENCODE or len(args) != 2 or args[1] != LATIN_1 or not isinstance(text, str):
            return None
        # One text may be encoded any number of times: do it once, and keep the
        # text so that its id is not reused.
        if id(text) not in self.encoded:
            try:
                raw = text.encode("latin-1")
            except UnicodeEncodeError:
                raw = None
            self.encoded[id(text)] = text, raw
        return self.encoded[id(text)][1]

    def call_with_names(self) -> None:
        kwargs = self._pop()
        args = self._pop_args()
        self._push_container(CallResult(self._pop(), args, kwargs))

    def build(self) -> None:
        state = self._pop()
        target = self._top()
        if not isinstance(target, CallResult):
            self._fail("sets the state of something that is not an object")
        target.states.append(state)

    def persistent(self) -> None:
        self.stack.append(self.load(self._pop(), self.at))


_BEYOND_LATIN = re.compile("[^\0-\xff]")
_Step = Callable[[_PickleMachine], None]


def _constant(value: object) -> _Step:
    return lambda m: m.stack.append(value)


def _integer(width: int, *, signed: bool = False) -> _Step:
    return lambda m: m.stack.append(m._integer(width, signed=signed))


def _text(width: int) -> _Step:
    return lambda m: m.stack.append(m._text(m._integer(width)))


def _bytes(width: int) -> _Step:
    return lambda m: m.stack.append(m._take(m._integer(width)))


_STEPS: dict[int, _Step] = {
    opcode[0]: step
    for opcode, step in {
        b"\x80": _PickleMachine.proto,
        b"\x95": _PickleMachine.frame,
        b"(": _PickleMachine.mark,
        b"0": _PickleMachine.pop,
        b"1": lambda m: m._pop_mark().clear(),
        b"2": _PickleMachine.dup,
        b"\x94": lambda m: m._put(len(m.memo)),
        b"q": lambda m: m._put(m._integer(1)),
        b"r": lambda m: m._put(m._integer(4)),
        b"h": lambda m: m._get(m._integer(1)),
        b"j": lambda m: m._get(m._integer(4)),
        b"N": _constant(None),
        b"\x88": _constant(True),
        b"\x89": _constant(False),
        b"K": _integer(1),
        b"M": _integer(2),
        b"J": _integer(4, signed=True),
        b"\x8a": lambda m: m.binary_long(1),
        b"\x8b": lambda m: m.binary_long(4),
        b"G": _PickleMachine.binary_float,
        b"U": lambda m: m.string(1),
        b"T": lambda m: m.string(4),
        b"\x8c": _text(1),
        b"X": _text(4),
        b"\x8d": _text(8),
        b"C": _bytes(1),
        b"B": _bytes(4),
        b"\x8e": _bytes(8),
        b"\x96": _bytes(8),
        b"]": lambda m: m._push_container(List()),
        b"l": lambda m: m._push_container(List(m._pop_mark())),
        b"a": lambda m: m.extend(List, [m._pop()]),
        b"e": lambda m: m.extend(List, m._pop_mark()),
        b")": _constant(()),
        b"t": lambda m: m._push_container(tuple(m._pop_mark())),
        b"\x85": lambda m: m.tuple_of(1),
        b"\x86": lambda m: m.tuple_of(2),
        b"\x87": lambda m: m.tuple_of(3),
        b"}": lambda m: m._push_container(Dict(filled_at=m.pos)),
        b"d": lambda m: m._push_container(Dict(m._pairs(m._pop_mark()), m.pos)),
        b"s": lambda m: m.set_pairs([m._pop(), m._pop()][::-1]),
        b"u": lambda m: m.set_pairs(m._pop_mark()),
        b"\x8f": lambda m: m._push_container(Set()),
        b"\x90": lambda m: m.extend(Set, m._pop_mark()),
        b"\x91": lambda m: m._push_container(Set(m._pop_mark())),
        b"c": _PickleMachine.global_name,
        b"\x93": _PickleMachine.stack_global,
        b"R": _PickleMachine.call,
        b"\x81": _PickleMachine.call,
        b"\x92": _PickleMachine.call_with_names,
        b"b": _PickleMachine.build,
        b"Q": _PickleMachine.persistent,
    }.items()
}
"""What each supported opcode does, except STOP."""

_COUNTS = [VALUE // 2] * 256
"""The cost of each opcode; most make a number, or a reference to something that exists."""
for _opcodes, _amount in (
    (b"UTX\x8c\x8dCB\x8e\x96", VALUE),  # texts and bytes
    (b"qr\x94", VALUE + VALUE // 2),  # memo entries
    (b"(]l)t\x85\x86\x87}d\x8f\x91", CONTAINER),  # marks, lists, tuples, dicts, sets
    (b"c\x93R\x81\x92Q", 2 * CONTAINER),  # globals, calls, storages
):
    for _opcode in _opcodes:
        _COUNTS[_opcode] = _amount
