"""Pickles: opcodes run without effect, within limits."""

from __future__ import annotations

import os
import pickle
import pickletools
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.samples import check_cut
from tests.containers.torch_files import (
    archive,
    dict_of,
    list_of,
    name,
    named,
    number,
    pickled,
    text,
    tuple_of,
    vector,
)
from wtxtgit.containers.any_format import describe, split
from wtxtgit.containers.torch import pickle_read
from wtxtgit.containers.torch.listing import list_tensors
from wtxtgit.containers.torch.pickle_read import (
    CallResult,
    Dict,
    Global,
    List,
    LongInteger,
    Pickle,
    Set,
)
from wtxtgit.errors import FormatError


def run(data: bytes) -> Pickle:
    return pickle_read.parse(memoryview(data), "pickle", lambda pid, _offset: ("id", pid))


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        run(data)
    assert caught.value.field == "pickle"
    assert caught.value.offset is not None
    return caught.value


def plain(value: object) -> object:
    """A value made of Python's own containers, of those that are short and shallow."""
    if isinstance(value, List):
        return [plain(item) for item in value.items]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, Set):
        return {plain(item) for item in value.items}
    if isinstance(value, Dict):
        return {plain(key): plain(held) for key, held in value.pairs}
    return value


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**2000), 2**2000)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(SCALARS, inner)
        | st.frozensets(SCALARS).map(set)
    ),
    max_leaves=30,
)


@given(VALUES, st.sampled_from([4, 5]))
def test_values_are_those_of_python(value: object, protocol: int) -> None:
    assert plain(run(pickle.dumps(value, protocol)).root) == value


@given(st.recursive(st.integers() | st.text(), st.lists, max_leaves=30))
def test_protocol_2_and_bytes_after_the_end(value: object) -> None:
    data = pickle.dumps(value, 2)
    found = run(data + b"more")
    assert plain(found.root) == value
    assert (found.protocol, found.end) == (2, len(data))


def test_a_pickle_that_does_not_start_at_0() -> None:
    data = b"....." + pickled(number(7))
    found = pickle_read.parse(memoryview(data), "pickle", lambda p, _: p, start=5)
    assert (found.root, found.end) == (7, len(data))


def test_calls_are_noted_and_not_made(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "made"),)

    for protocol in (2, 4):
        found = run(pickle.dumps(Harmful(), protocol))
        assert isinstance(found.root, CallResult)
        assert found.root.callee == Global(os.mkdir.__module__, "mkdir")
        assert found.root.args == (str(tmp_path / "made"),)
        assert found.globals == (Global(os.mkdir.__module__, "mkdir"),)
    assert list(tmp_path.iterdir()) == []


def test_objects_keep_state_items_and_pairs() -> None:
    held = OrderedDict(a=1)
    held.mark = 5  # type: ignore[attr-defined]
    found = run(pickle.dumps(held, 2)).root
    assert isinstance(found, CallResult)
    assert found.pairs == [("a", 1)]
    (state,) = found.states
    assert isinstance(state, Dict)
    assert state.pairs == [("mark", 5)]


def test_strings_of_python_2() -> None:
    assert run(b"\x80\x02U\x03abc.").root == "abc"
    assert run(b"\x80\x02T\x03\x00\x00\x00abc.").root == "abc"
    assert run(b"\x80\x02U\x02\xff\x00.").root == b"\xff\x00"


def test_a_mark_that_is_open_where_the_pickle_stops() -> None:
    assert "stops with a mark still open" in str(refusal(b"\x80\x02(K\x01."))
    assert "stops with a mark still open" in str(refusal(b"\x80\x02K\x01(."))
    open_mark = archive(b"(" + named(w=vector("0", 2)), {"0": bytes(8)})
    result = split(memoryview(open_mark))
    assert result.layout.format == "opaque"
    assert "stops with a mark still open" in (result.reason or "")


READ_OPCODES = {bytes([code]) for code in (*pickle_read._STEPS, pickle_read.STOP)}


def test_which_opcodes_are_read() -> None:
    refused = {
        op.name for op in pickletools.opcodes if op.code.encode("latin-1") not in READ_OPCODES
    }
    assert refused == {
        *("INT", "LONG", "FLOAT", "STRING", "UNICODE", "GET", "PUT", "PERSID", "INST", "OBJ"),
        *("EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"),
    }


def test_other_opcodes_are_refused() -> None:
    for code in [c for c in range(256) if bytes([c]) not in READ_OPCODES]:
        error = refusal(b"\x80\x02" + bytes([code]) + b"\n\n\n\n.")
        assert (error.kind, error.offset) == ("structure", 2), code


LONG = pickle_read.MAX_INTEGER_BYTES + 1
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "structure"),
    "protocol 6": (b"\x80\x06N.", "structure"),
    "empty stack": (b".", "structure"),
    "pop of nothing": (b"0N.", "structure"),
    "no mark": (b"Nt.", "structure"),
    "below a mark": (b"N(\x85t.", "structure"),
    "stop below a mark": (b"N(.", "structure"),
    "duplicate of nothing": (b"2.", "structure"),
    "memo without a value": (b"q\x00.", "structure"),
    "memo that is empty": (b"h\x00.", "structure"),
    "append to a tuple": (b")Na.", "structure"),
    "set items of a list": (b"]NNs.", "structure"),
    "odd count of pairs": (b"}(Nu.", "structure"),
    "odd dict": (b"(Nd.", "structure"),
    "add to a list": (b"](N\x90.", "structure"),
    "state of a list": (b"]}b.", "structure"),
    "call without a tuple": (b"N]R.", "structure"),
    "global of numbers": (b"K\x01K\x02\x93.", "structure"),
    "global without an end": (b"cos\n" + b"x" * 9999, "structure"),
    "global not UTF-8": (b"c\xff\nx\n.", "structure"),
    "global too long": (b"c" + b"x" * 1025 + b"\nx\n.", "limit"),
    "frame too long": (b"\x95" + bytes([9] + [0] * 7) + b"N.", "structure"),
    "text too long": (b"X\xff\xff\xff\x7fabc.", "structure"),
    "text not UTF-8": (b"X\x01\x00\x00\x00\xff.", "structure"),
    "text of 2^64": (b"\x8d" + b"\xff" * 8 + b".", "structure"),
    "bytes of 2^63": (b"\x8e" + b"\xff" * 7 + b"\x7f.", "structure"),
    "string of a negative length": (b"T\xff\xff\xff\xff.", "structure"),
    "integer of 2 GiB": (b"\x8b\xff\xff\xff\x7f.", "structure"),
    "integer of a negative length": (b"\x8b\xff\xff\xff\xff.", "structure"),
    "integer cut short": (b"\x8b" + LONG.to_bytes(4, "little") + bytes(LONG - 1), "structure"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    data, kind = REFUSED[case]
    assert refusal(data).kind == kind


def test_the_memo_has_any_numbers_wherever_the_pickle_stands() -> None:
    assert run(b"Nr\xff\xff\xff\xffj\xff\xff\xff\xff.").root is None


def test_long_integers_are_passed_over() -> None:
    found = run(b"\x8b" + LONG.to_bytes(4, "little") + bytes(LONG) + b".").root
    assert isinstance(found, LongInteger)
    assert found.nbytes == LONG
    key = pickle.dumps(2**2100, 2)[2:-1]
    assert listed(dict_of((key, vector("0", 2)), (key, vector("0", 2)))) == ["int", "int"]


def test_a_text_that_is_encoded_often_is_encoded_once() -> None:
    long = text("k" * 2**20) + b"q\x00"
    encode = name("_codecs", "encode") + b"q\x01"
    again = b"h\x01h\x00h\x02\x86R" * 10_000
    value = b"(" + long + encode + text("latin1") + b"q\x02" + again + b"l"
    found = run(value + b".").root
    assert isinstance(found, List)
    assert len({id(item) for item in found.items[3:]}) == 1
    # A text that can't be encoded is tried once, too.
    long = text("k" * 2**20 + "\u0100") + b"q\x00"
    found = run(b"(" + long + encode + text("latin1") + b"q\x02" + again + b"l.").root
    assert isinstance(found, List)
    assert all(isinstance(item, CallResult) for item in found.items[3:])


def test_too_many_opcodes_and_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_read, "MAX_OPCODES", 10)
    assert run(b"N" * 9 + b".").root is None
    assert refusal(b"N" * 10 + b".").kind == "limit"
    monkeypatch.setattr(pickle_read, "MAX_CONTAINERS", 4)
    assert run(b"]" * 4 + b".")
    assert refusal(b"]" * 5 + b".").kind == "limit"


def listed(value: bytes) -> list[str]:
    found = describe(memoryview(archive(value, {"0": bytes(8)})))
    return [tensor.name for tensor in found.tensors]


def why_opaque(value: bytes) -> str:
    data = archive(value, {"0": bytes(8)})
    result = split(memoryview(data))
    check_cut(result, data)
    assert result.layout.format == "opaque"
    return str(result.reason)


def test_shared_lists_do_not_blow_up() -> None:
    bomb = b"](" + vector("0", 2) + b"eq\x00"
    for level in range(64):
        bomb += b"0](" + bytes([ord("h"), level]) * 2 + b"eq" + bytes([level + 1])
    assert "too" in why_opaque(bomb)
    tuples = vector("0", 2) + b"2\x86" * 64
    assert "too" in why_opaque(tuples)


def test_values_that_are_long_and_shared_do_not_blow_up() -> None:
    again = b"h\x00" * 800
    leaf = vector("0", 2)
    pair = text("w") + leaf
    for long in (
        b"}(" + pair + b"NN" * 6_000 + b"u",
        b"](" + leaf + b"N" * 6_000 + b"e",
        b"(" + leaf + b"N" * 6_000 + b"t",
        name("torch._utils", "_rebuild_parameter") + b"(" + leaf + b"N" * 6_000 + b"tR",
        name("collections", "OrderedDict") + b"](" + pair + b"\x86" + b"N" * 6_000 + b"e\x85R",
        name("collections", "OrderedDict") + b")R}(" + pair + b"NN" * 6_000 + b"ub",
    ):
        assert "too many times" in why_opaque(b"](" + long + b"q\x00" + again + b"e")


def test_values_without_tensors_are_looked_at_once() -> None:
    numbers = b"](" + b"N" * 6_000 + b"K\x07eq\x00"
    value = named(w=vector("0", 2), a=numbers, b=list_of(*[b"h\x00"] * 800))
    data = memoryview(archive(value, {"0": bytes(8)}))
    assert [tensor.name for tensor in describe(data).tensors] == ["w"]
    assert describe(data).untold == ("a", "b")
    tuples = b"N" + b"2\x86" * 64
    assert listed(tuples) == []


def test_values_inside_of_themselves_have_their_tensors_elsewhere() -> None:
    inner = b"]q\x01h\x00a"
    outer = b"]q\x00" + inner + b"a" + vector("0", 2) + b"a"
    assert listed(list_of(outer, b"h\x01")) == ["0.1", "1.0.1"]


def test_deep_values_are_refused() -> None:
    assert listed(b"](" * 999 + vector("0", 2) + b"e" * 999) == [".".join("0" * 999)]
    deep: dict[str, bytes] = {
        "lists": b"](" * 1001 + b"N" + b"e" * 1001,
        "tuples": b"N" + b"\x85" * 50_000,
        "calls": b"N" + b")R" * 10_000,
        "states": b"N)RN" + b"\x85" * 1001 + b"b",
    }
    for value in deep.values():
        assert "nested too deeply" in why_opaque(value)


def test_what_is_called_may_be_anything() -> None:
    called = list_of(vector("0", 2)) + b")R"
    assert listed(named(w=vector("0", 2), x=called)) == ["w", "x.0"]
    deep = b"N" + b"\x85" * 100_000 + b")R"
    assert "nested too deeply" in why_opaque(named(w=vector("0", 2), x=deep))


def test_keys_that_are_long_or_alike_cost_no_more_than_their_bytes() -> None:
    key = text("k" * 2**20) + b"q\x00"
    value = b"}(" + key + b"N" + b"h\x00N" * 20_000 + b"u"
    assert listed(value) == []
    numbers = b"".join(number(n * (2**61 - 1)) + b"N" for n in range(20_000))
    assert listed(b"}(" + numbers + b"u") == []


def test_long_names_are_bounded() -> None:
    key = text("k" * 2**20) + b"q\x00"
    tensors = b"".join(tuple_of(number(n)) + vector("0", 2) for n in range(500))
    value = b"}(" + key + b"}(" + tensors + b"uu"
    assert "lists more items than" in why_opaque(value)


def test_cyclic_values_end() -> None:
    assert listed(b"]q\x00h\x00a" + vector("0", 2) + b"a") == ["1"]
    assert listed(b"}q\x00" + text("me") + b"h\x00s" + text("w") + vector("0", 2) + b"s") == ["w"]


def sample() -> bytes:
    return archive(
        named(w=vector("0", 2), x=b"](" + number(5) + b"Ne", y=b"c__main__\nThing\n)\x81}b"),
        {"0": bytes(8)},
    )


def test_files_cut_short_at_every_byte() -> None:
    data = sample()
    for size in range(len(data)):
        check_cut(split(memoryview(data[:size])), data[:size])


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_files_with_each_byte_changed(mask: int) -> None:
    data = bytearray(sample())
    for place in range(len(data)):
        data[place] ^= mask
        check_cut(split(memoryview(bytes(data))), bytes(data))
        with suppress(FormatError):
            describe(memoryview(bytes(data)))
        data[place] ^= mask


@given(st.binary(max_size=60))
def test_any_bytes_as_a_pickle_raise_only_format_errors(raw: bytes) -> None:
    with suppress(FormatError):
        list_tensors(run(b"\x80\x02" + raw), 0, "pickle")


OPCODES = st.sampled_from(sorted(READ_OPCODES))


@given(st.lists(OPCODES | st.just(b"\x00") | st.just(b"(") | st.just(b"]"), max_size=60))
def test_any_opcodes_raise_only_format_errors(codes: list[bytes]) -> None:
    with suppress(FormatError):
        list_tensors(run(b"".join(codes) + b"."), 0, "pickle")
