"""Targets: container files of each format, sets, tars, and the languages within them."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import msgpack

from tests.data import FIXTURES
from tests.fuzz import naive
from tests.fuzz.container_oracle import KEYED, Members, Oracle, check_refusal
from tests.fuzz.guided.target import Target
from tests.fuzz.seeds import FORMATS, legacy, seeds, sets
from tests.fuzz.structure import structured
from tests.fuzz.test_container_memory import JSON, MSGPACK
from tests.fuzz.test_containers import folders, hold_with_tars, tar_mutant
from wtxtgit.containers import any_format, json_text, msgpack_limits, npy_literal, zstd_limits
from wtxtgit.containers.tar_index import Tar
from wtxtgit.containers.taridx.read import Taridx
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import Description


def container(name: str, data: bytes) -> bool:
    """Read in every way; where nothing is wrong a reader that checks nothing reads the same."""
    Oracle(KEYED).hold(data)
    view = memoryview(data)
    try:
        any_format.salvage(view, KEYED)
        described = any_format.describe(view, KEYED)
        json.dumps(described.metadata)
    except FormatError as refusal:
        check_refusal(refusal)
        return False
    findings = any_format.check(view, KEYED)
    if described.format != name:
        return False
    if not findings.errors and not findings.warnings and name in _NAIVE:
        _NAIVE[name](data, described)
    return not findings.errors


def _as_fold(data: bytes, described: Description) -> None:
    naive.fold(data, KEYED.decryption_key)


def _as_aero(data: bytes, described: Description) -> None:
    read: Any = naive.aero(data)
    for tensor in described.tensors:
        if tensor.absent is None:
            _, shape, held = read[tensor.name]
            assert (shape, held) == (tensor.shape, bytes(tensor.data))


def _as_mlcp(data: bytes, described: Description) -> None:
    read: Any = naive.mlcp(data)
    records = [(name, tuple(shape)) for shard in read for name, _, shape, _ in shard]
    assert records == [(t.name, t.shape) for t in described.tensors]


_NAIVE = {"fold": _as_fold, "aero": _as_aero, "mlcp": _as_mlcp}


def index_of_set(name: str, data: bytes) -> bool:
    """An index of files that are as they should be, of each set of the seeds."""
    view = memoryview(data)
    if any_format.identify(view) != name:
        Oracle().hold(data, {})
        return False
    for _, members in sets()[name]:
        Oracle().hold(data, members)
    return True


def member_of_set(name: str, data: bytes) -> bool:
    """A file among those of a set."""
    index, members = sets()[name][-1]
    Oracle().hold(index, _with(members, data))
    return True


def _with(members: Members, data: bytes) -> Members:
    return members | {min(members): data}


def tars(data: bytes) -> bool:
    """An index of tars, its length before it and a tar behind it."""
    size = int.from_bytes(data[:4], "big")
    index, tar = data[4 : 4 + size], data[4 + size :]
    try:
        read = any_format.read(memoryview(index))
    except FormatError as refusal:
        check_refusal(refusal)
        return False
    if not isinstance(read, Taridx):
        return False
    hold_with_tars(read, [Tar("t_0.tar", memoryview(tar))], folders()[0][2])
    return True


def indexes_with_tars() -> Iterator[bytes]:
    for index, held, _ in folders():
        yield len(index).to_bytes(4, "big") + index + held[0]


def _tar_mutant(data: bytes, rng: random.Random) -> bytes:
    size = 4 + int.from_bytes(data[:4], "big")
    return data[:size] + tar_mutant(data[size:], rng)


def json_value(data: bytes) -> bool:
    """What is read is what Python reads; what is put in its place is read again."""
    try:
        value = json_text.parse(memoryview(data), "text")
    except FormatError as refusal:
        check_refusal(refusal)
        return False
    text = data.decode()
    # Two NaN are not equal.
    assert repr(json.loads(text)) == repr(value)
    if isinstance(value, dict) and value and all(map(json_text.is_text, value)):
        key = next(iter(value))
        replaced = json.loads(json_text.replaced(text, {(key,): [1, "é\n"]}))
        assert repr(replaced) == repr(value | {key: [1, "é\n"]})
    try:
        json_text.parse(memoryview(data), "text", unique_keys=True)
    except FormatError as refusal:
        check_refusal(refusal)
    return True


def json_seeds() -> Iterator[bytes]:
    yield from JSON.values()
    for path in sorted(FIXTURES.glob("**/*.json")):
        yield path.read_bytes()
    yield from (b'{"a":{"b":[1,-2.5e3,null,true]},"\\u00e9\\ud83d\\ude00":"\\\\\\"/"}', b"[NaN,-0]")


def msgpack_value(data: bytes) -> bool:
    """What is read is what the library reads; extensions apart, whose meaning differs."""
    try:
        value = msgpack_limits.parse(data, "index")
    except FormatError as refusal:
        check_refusal(refusal)
        return False
    reader = msgpack.Unpacker(strict_map_key=False, object_pairs_hook=_pairs)
    reader.feed(data)
    try:
        other = repr(reader.unpack())
    except ValueError:
        # It judges the codes of extensions, which are masked here.
        return True
    if "ExtType" not in other and "Timestamp" not in other:
        assert repr(value) == other
    return True


def _pairs(pairs: list[tuple[object, object]]) -> dict[str, object]:
    return {key: value for key, value in pairs if isinstance(key, str)}


def msgpack_seeds() -> Iterator[bytes]:
    yield from MSGPACK
    yield msgpack.packb({"a": [1, -1, 2**63, 1.5, None, True, b"x", "é"], "b": {"c": []}})


def literal(data: bytes) -> bool:
    """What is read of numpy's literals is what Python's own reader reads."""
    text = data.decode("latin-1")
    try:
        value = npy_literal.parse(text)
    except FormatError as refusal:
        check_refusal(refusal)
        return False
    # Python's reader takes no NUL; within a string it is a character as any other here.
    if "\0" not in text:
        # In brackets, where blanks and ends of lines say nothing.
        assert ast.literal_eval(f"({text}\n)") == value
    return True


def literals() -> Iterator[bytes]:
    yield b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
    yield b"{'descr': [('a', '<i4', (2,)), ((\"t\", 'b'), '|S3')], 'shape': ()}"
    yield b"['\\x41\\u00e9\\U0001f600\\n', \"'\", -1, 18446744073709551615, (1,), (), [], {}]"


def zstd(data: bytes) -> bool:
    """At most so many bytes are given, and they are those of the library."""
    try:
        held = zstd_limits.decode(memoryview(data), 65_536, "chunk")
    except FormatError as refusal:
        check_refusal(refusal, ("structure", "limit"))
        return False
    assert len(held) <= 65_536
    return True


def zstd_seeds() -> Iterator[bytes]:
    import zstandard

    packed = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(5000) + b"weights" * 99)
    yield from (packed, packed + packed, packed[:-1], b"\x50\x2a\x4d\x18\3\0\0\0abc" + packed)


@cache
def _seeds(name: str) -> tuple[bytes, ...]:
    return (*seeds(name), *(legacy() if name == "torch" else ()))


def _container(name: str) -> Target:
    return Target(partial(_seeds, name), partial(container, name), partial(structured, name))


def _set(name: str) -> Target:
    def indexes() -> list[bytes]:
        return [index for index, _ in sets()[name]]

    return Target(indexes, partial(index_of_set, name), partial(structured, name))


TARGETS = {
    **{name: _container(name) for name in FORMATS},
    **{name: _set(name) for name in sets()},
    "tars": Target(indexes_with_tars, tars, _tar_mutant, longest=30_000),
    "json": Target(json_seeds, json_value),
    "msgpack": Target(msgpack_seeds, msgpack_value),
    "literal": Target(literals, literal),
    "zstd": Target(zstd_seeds, zstd),
}
